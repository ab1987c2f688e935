"""What each kind of text from other files is worth, where a hole uses a name of another file.

    python benchmarks/context.py --model PATH --csv FILE [--n N]           a minute a hole
    python benchmarks/context.py --csv FILE --report

The holes are those of `project_holes.py`: the rest of a line behind `name(` or `module.`, with 25
lines above and 10 below. Each is asked for without other text, and with one chunk in `input_extra`:

  none          nothing
  signature     the definition up to its body; of a class, its fields and methods
  surroundings  the 64 lines around the definition, as editors send them
  file          the whole file that defines the name
  unrelated     as much of a file of another project

What is measured is the probability of the true rest of the line, in bits (its first 24 tokens), and
whether the product writes it, greedily. The prompt is as large as the context allows however slow
the machine is, in `psm` order: all variants differ in the chunk alone. A hole's rows are appended
when it is done, so a run that was broken off goes on with the next one.

The report has means with standard errors that allow for the holes of one project being alike, and
the gain on `none`, paired. The half of the holes that are this project's own were in no model's
training data; many of the others were, and their file is then no news to the model.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.project_holes import OWN, ProjectHole, Source, all_sources, project_holes, unrelated_to
from harness.tables import print_table, show_progress
from infilling import clustered, shown

from suture.server.calibration.profile import fingerprint
from suture.server.calibration.rows import Rows
from suture.server.calibration.scoring import written
from suture.server.completion import LoadedModel
from suture.server.local import load_model
from suture.server.prompt.plan import plan_prompt
from suture.server.prompt.text_encoding import text_encoding
from suture.server.request import CompletionRequest, ExtraText
from suture.server.settings import load_settings

COLUMNS = ("model", "hole", "kind", "variant", "extra_tokens", "bits", "match")
VARIANTS = ("none", "signature", "surroundings", "file", "unrelated")
N_CTX = 8192
N_TOKENS = 24
MODEL, HOLE, KIND, VARIANT, EXTRA_TOKENS, BITS, MATCH = range(len(COLUMNS))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a variant made of a hole; `extra_tokens` of other text were in its prompt."""

    kind: str
    extra_tokens: int
    bits: float
    match: bool


Found = dict[str, dict[str, Outcome]]
"""By hole, and by variant."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, metavar="PATH", help="a GGUF file")
    parser.add_argument("--csv", type=Path, required=True, metavar="FILE", help="results")
    parser.add_argument("--n", type=int, default=60, metavar="N", help="holes (default: 60)")
    parser.add_argument("--report", action="store_true", help="print what the results say")
    args = parser.parse_args()
    if args.model is not None:
        with_model(args.model, args.csv, args.n)
    if args.report or args.model is None:
        report(read(args.csv))


def with_model(path: Path, results: Path, n_holes: int) -> None:
    name = fingerprint(path)[:8]
    known = read(results, name)
    # Sources of others have escapes that Python warns of.
    warnings.simplefilter("ignore", SyntaxWarning)
    sources = all_sources()
    holes = project_holes(sources)[:n_holes]
    engine, model = load_model(path, path.stem, load_settings({"ctx": N_CTX}), lambda: True)
    try:
        asked = Asked(model)
        for number, hole in enumerate(holes, 1):
            if len(known.get(hole.key, {})) == len(VARIANTS):
                continue
            started = time.perf_counter()
            rows = []
            for variant, extra in extras(hole, sources).items():
                outcome = asked.about(hole, extra)
                figures = (outcome.extra_tokens, f"{outcome.bits:.4f}", int(outcome.match))
                rows.append((name, hole.key, outcome.kind, variant, *figures))
            append(results, rows)
            elapsed = time.perf_counter() - started
            show_progress(f"{number} of {len(holes)}: {hole.key}, {elapsed:.1f} s a hole")
    finally:
        engine.close()
        print(file=sys.stderr)


def extras(hole: ProjectHole, sources: Sequence[Source]) -> dict[str, tuple[ExtraText, ...]]:
    """The other text of each variant."""
    other, unrelated = hole.other, unrelated_to(hole, sources)
    cut = unrelated.text[: len(other.text)]
    return {
        "none": (),
        "signature": (ExtraText(hole.signature, other.path),),
        "surroundings": (ExtraText(hole.surroundings, other.path),),
        "file": (ExtraText(other.text, other.path),),
        "unrelated": (ExtraText(cut[: cut.rfind("\n") + 1], unrelated.path),),
    }


class Asked:
    """A model that is asked about holes, on the engine's thread."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = replace(model, budget=replace(model.budget, prefill_tokens_per_s=1e6))
        vocabulary = model.engine.vocabulary
        self._inner = text_encoding(model.codec.encode, vocabulary, model.family).inner
        ends = vocabulary.eog_ids | (model.family.stop_ids if model.family else set())
        self._rows = Rows(model.engine, (i for i in vocabulary.silent_ids if i not in ends))

    def about(self, hole: ProjectHole, extra: tuple[ExtraText, ...]) -> Outcome:
        """What the model makes of the hole with this text from other files."""
        model = self._model
        request = CompletionRequest(
            hole.prefix,
            hole.suffix if model.family else "",
            infill=True,
            extra=extra,
            path=hole.source.path,
            layout="psm" if model.family else "auto",
            fim_boundary="keep" if model.family else "auto",
            healing="off",
            shape="line",
            max_tokens=N_TOKENS,
        )
        plan = plan_prompt(
            request, model.engine.vocabulary, model.family, model.codec.encode, model.budget
        )
        text, _ = written(request, plan, model, self._rows)
        return Outcome(
            kind="attribute" if hole.prefix.endswith(".") else "arguments",
            extra_tokens=sum(n for role, n in plan.segments if role == "extra"),
            bits=self._bits(plan.kept_ids, hole.middle),
            match=text.rstrip() == hole.middle.rstrip(),
        )

    def _bits(self, kept_ids: tuple[int, ...], middle: str) -> float:
        ids = tuple(self._inner(middle.encode()))[:N_TOKENS]
        rows = self._rows.behind([kept_ids + ids[:n] for n in range(len(ids))])
        nats = (float(rows[kept_ids + ids[:n]][token_id]) for n, token_id in enumerate(ids))
        return sum(nats) / math.log(2.0)


def append(path: Path, rows: Sequence[Sequence[object]]) -> None:
    """All rows of a hole at once."""
    is_new = not path.exists() or not path.stat().st_size
    is_torn = not is_new and path.read_bytes()[-1:] != b"\n"
    with path.open("a", newline="", encoding="utf-8") as file:
        file.write("\n" if is_torn else "")
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows] if is_new else rows)


def read(path: Path, model: str | None = None) -> Found:
    """What is known; of one model only, or the run ends."""
    found: Found = defaultdict(dict)
    models = {model} if model else set()
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.reader(file):
                if len(line) != len(COLUMNS) or line[MODEL] == COLUMNS[MODEL]:
                    continue
                models.add(line[MODEL])
                found[line[HOLE]][line[VARIANT]] = Outcome(
                    line[KIND], int(line[EXTRA_TOKENS]), float(line[BITS]), line[MATCH] == "1"
                )
    if len(models) > 1:
        raise SystemExit(f"{path}: results of several models: {', '.join(sorted(models))}")
    return found


def report(found: Found) -> None:
    whole = {key: of for key, of in found.items() if len(of) == len(VARIANTS)}
    strata = {
        "all": list(whole),
        "installed packages": [key for key in whole if project(key) != OWN],
        "this project": [key for key in whole if project(key) == OWN],
        "behind name(": [key for key in whole if whole[key]["none"].kind == "arguments"],
        "behind module.": [key for key in whole if whole[key]["none"].kind == "attribute"],
    }
    for name, keys in strata.items():
        if keys:
            print(f"\n{name}: {len(keys)} holes")
            columns = (
                "text from other files",
                "tokens",
                "bits",
                "gain, bits",
                "match",
                "gain, match",
            )
            print_table(columns, [row_of(variant, keys, whole) for variant in VARIANTS])


def row_of(
    variant: str, keys: Sequence[str], found: Mapping[str, Mapping[str, Outcome]]
) -> list[str]:
    ours = [found[key][variant] for key in keys]
    none = [found[key]["none"] for key in keys]
    figures = (
        [one.bits for one in ours],
        [one.bits - base.bits for one, base in zip(ours, none, strict=True)],
        [float(one.match) for one in ours],
        [float(one.match) - float(base.match) for one, base in zip(ours, none, strict=True)],
    )
    projects = [project(key) for key in keys]
    n_tokens = sum(one.extra_tokens for one in ours) / len(ours)
    return [variant, f"{n_tokens:.0f}", *(shown(clustered(f, projects)) for f in figures)]


def project(key: str) -> str:
    return key.partition("/")[0]


if __name__ == "__main__":
    main()
