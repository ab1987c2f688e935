"""The streams of tokens that the benchmarks feed, over the default model's vocabulary."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

from suture.healing import Vocabulary
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.models.catalog import Catalog
from suture.server.models.progress import progress_on
from suture.server.models.resolve import resolve_model
from suture.server.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent.parent
CODE_BYTES = 60_000
N_MIXED = 8_000
N_ODD = 4_000

# All are begun again and again in code, and none is ever complete: whole streams are read.
FOUR_STOPS = ("\n\n\nZZ", "\nclass ZZ", "\nif __name__ZZ", "    return ZZ")
STOPS: dict[str, tuple[str, ...]] = {
    "none": (),
    "1 stop": FOUR_STOPS[:1],
    "4 stops": FOUR_STOPS,
    "64 stops": (*FOUR_STOPS, *(f"\n# section {n} ZZ" for n in range(60))),
}

_PHRASES = (
    "我很感谢你的热情。", "မင်္ဂလာပါ၊ ", "ที่นี่มีน้ำใจ ", "क्षत्रिय ज्ञान ", "قيمة نص ", "שָׁלוֹם ", "한글과 ",
    "Thực hiện ", "👩‍👩‍👧‍👦 ", "👨🏽‍💻", "🏳️‍🌈 ", "𠮷野家", "naïve café ", "привет мир ", "x = 3;\n",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Streams:
    """A vocabulary, its file, and token ids: Python code, mixed scripts with split emoji, bytes
    that no continuation makes text, and special tokens that have no text."""

    path: Path
    vocabulary: Vocabulary
    code: list[int]
    mixed: list[int]
    invalid: list[int]
    silent: list[int]

    def text(self, ids: list[int]) -> str:
        """All bytes of the tokens, decoded at once."""
        return b"".join(map(self.vocabulary.bytes_of, ids)).decode("utf-8", "replace")


def model_path() -> Path:
    """The default model, fetched if it is not there."""
    store = load_settings().model_store
    return resolve_model(None, Catalog.packaged(), store, progress_on(sys.stderr))


def read_streams() -> Streams:
    """All streams, the same ones each time."""
    path = model_path()
    vocabulary = Vocabulary.from_gguf(path)
    tokenizer = LlamaTokenizer(path)
    source = b"".join(file.read_bytes() for file in sorted((ROOT / "server").rglob("*.py")))
    chosen = random.Random(1).choices(_PHRASES, k=N_MIXED)
    mixed = tokenizer.encode("".join(chosen).encode())[:N_MIXED]
    [lone] = vocabulary.ids_of(b"\x80")
    silent = sorted(vocabulary.control_ids)[0]
    return Streams(
        path,
        vocabulary,
        code=tokenizer.encode(source[:CODE_BYTES]),
        mixed=mixed,
        invalid=[lone] * N_ODD,
        silent=[silent] * N_ODD,
    )
