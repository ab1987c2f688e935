"""The families that are known, one row each. docs/fim-families.md shows them with their sources.

The texts are those of the special tokens, to the character: ``<｜fim▁hole｜>`` has U+FF5C bars and
U+2581 blocks. `FAMILIES` is ordered: where several rows fit alike, the first stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Order = Literal["psm", "spm"]
Role = Literal["pre", "suf", "mid", "rep", "sep", "user", "assistant"]
Evidence = Literal["source", "memory"]
KnownBy = Literal["tokens", "name"]
HoleLayout = Literal["psm", "spm", "anchor"]
TailBoundary = Literal["keep", "move"]


@dataclass(frozen=True, slots=True)
class RepositoryLayout:
    """How a family was shown several files.

    `title` stands before each file's path; None: a comment line names the file, as a person would.
    `first_separated` says whether the separator stands before the first file too or only between
    files, `cursor_titled` whether the cursor's own file is named behind the last of them. The
    separator is the family's "sep" token, or the text `separator`. `name_end` stands behind the
    repository's name.
    `inside_prefix`: the files stand behind the prefix sentinel, as if they were the file's head.
    `cursor_header` stands before every hole, with or without other files; it is a format string
    of ours with `{path}` and `{language}`, filled in and encoded as plain text.
    """

    title: str | None = None
    first_separated: bool = True
    cursor_titled: bool = True
    separator: str = ""
    name_end: str = "\n"
    inside_prefix: bool = False
    cursor_header: str = ""


COMMENTED = RepositoryLayout()


@dataclass(frozen=True, slots=True)
class LayoutDefaults:
    """What "auto" stands for: the layout of a hole, and what psm does with the prefix's tail."""

    layout: HoleLayout
    boundary: TailBoundary


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """What is known of a family before a vocabulary is looked at.

    `sentinels` has a text for "pre" and "suf", for "mid" if the family has that token, and for
    the other roles that `repository` uses. `stops` are the other texts that end a generation,
    those that the vocabulary has. `names` are parts of model names, lower case letters, digits
    and dots only; `architectures` are GGUF's. `known_by` "name": without it the tokens say
    nothing, because untrained models have them too. `evidence` "memory": no source for the order
    was found, and no file to test it on. `stop_strings` end the middle as `stops` do, in text:
    with them the family goes on to another file. `default_layout` (None: the order it was trained
    in) and `default_boundary` are what "auto" stands for: the safest until they are measured.
    """

    name: str
    order: Order
    sentinels: Mapping[Role, str]
    stops: tuple[str, ...]
    names: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    repository: RepositoryLayout = COMMENTED
    known_by: KnownBy = "tokens"
    evidence: Evidence = "source"
    stop_strings: tuple[str, ...] = ()
    default_layout: HoleLayout | None = None
    default_boundary: TailBoundary = "keep"


def _roles(
    pre: str, suf: str, mid: str | None, others: Mapping[Role, str] | None = None
) -> Mapping[Role, str]:
    roles: dict[Role, str] = {"pre": pre, "suf": suf}
    if mid is not None:
        roles["mid"] = mid
    return MappingProxyType(roles | dict(others or {}))


_PATHS = RepositoryLayout(title="")
_PIPED = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
_PLAIN = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
_CODE = ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>")
# StarCoder's markup of single files. How it was shown several is not known well enough to use.
_STARCODER_STOPS = ("<|endoftext|>", "<fim_pad>", "<reponame>", "<filename>")

FAMILIES: tuple[FamilyRow, ...] = (
    # Also Qwen3-Coder and later Qwen models. GGUF files often list only <|im_end|> as end of
    # generation: llama.cpp#9606.
    FamilyRow(
        name="qwen2.5-coder",
        order="psm",
        sentinels=_roles(*_PIPED, {"rep": "<|repo_name|>", "sep": "<|file_sep|>"}),
        stops=("<|endoftext|>", "<|im_end|>", "<|fim_pad|>"),
        repository=_PATHS,
        default_layout="anchor",
    ),
    FamilyRow(
        name="starcoder",
        order="psm",
        sentinels=_roles(*_PLAIN),
        stops=_STARCODER_STOPS,
        names=("starcoder", "starchat", "octocoder"),
        architectures=("starcoder",),
    ),
    # Also Stable-Code-3B, which has its vocabulary. The paper (arXiv:2402.19173, 5.1) has no line
    # end behind the repository's name.
    FamilyRow(
        name="starcoder2",
        order="psm",
        sentinels=_roles(*_PLAIN, {"rep": "<repo_name>", "sep": "<file_sep>"}),
        stops=("<|endoftext|>", "<fim_pad>"),
        names=("starcoder2", "starcoder", "stablecode"),
        architectures=("starcoder2",),
        repository=RepositoryLayout(title="", name_end=""),
    ),
    # The model card shows psm, the maker's own engine asks in spm.
    FamilyRow(
        name="refact-1.6b",
        order="spm",
        sentinels=_roles(*_PLAIN),
        stops=_STARCODER_STOPS,
        names=("refact",),
        architectures=("refact",),
    ),
    FamilyRow(
        name="codeqwen1.5",
        order="psm",
        sentinels=_roles(*_PLAIN),
        stops=("<|endoftext|>", "<|im_end|>", *_STARCODER_STOPS[1:]),
        names=("codeqwen",),
        architectures=("qwen2",),
    ),
    FamilyRow(
        name="granite-code",
        order="psm",
        sentinels=_roles(*_PLAIN),
        stops=_STARCODER_STOPS,
        names=("granite",),
        architectures=("granite", "granitemoe"),
    ),
    FamilyRow(
        name="mellum",
        order="spm",
        sentinels=_roles(*_PLAIN, {"sep": "<filename>"}),
        stops=("<|endoftext|>", "<fim_pad>", "<reponame>"),
        names=("mellum",),
        repository=_PATHS,
        known_by="name",
        evidence="memory",
    ),
    FamilyRow(
        name="santacoder",
        order="psm",
        sentinels=_roles("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
        stops=("<|endoftext|>", "<fim-pad>"),
        names=("santacoder",),
        known_by="name",
        evidence="memory",
    ),
    # The <EOT> is of its own: </s> ends a document. The spm of its paper is the one that `layouts`
    # has for a family trained psm.
    FamilyRow(
        name="codellama",
        order="psm",
        sentinels=_roles("▁<PRE>", "▁<SUF>", "▁<MID>"),
        stops=("▁<EOT>", "<EOT>", "</s>"),
        names=("codellama",),
    ),
    # Also DeepSeek-Coder-V2 and V4, whose instruction-tuned models fill holes badly.
    FamilyRow(
        name="deepseek-coder",
        order="psm",
        sentinels=_roles("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        stops=("<｜end▁of▁sentence｜>", "<|EOT|>"),
        names=("deepseek",),
    ),
    # All of Mistral's later vocabularies have the tokens, few of its models the training.
    FamilyRow(
        name="codestral",
        order="spm",
        sentinels=_roles("[PREFIX]", "[SUFFIX]", None),
        stops=("</s>",),
        names=("codestral",),
        repository=RepositoryLayout(
            title="+++++ ", first_separated=False, separator="\n", inside_prefix=True
        ),
        known_by="name",
        stop_strings=("\n+++++ ",),
    ),
    # Said to fill holes "reasonably"; its makers do not say that it was trained to.
    FamilyRow(
        name="mistral-7b",
        order="spm",
        sentinels=_roles("[PREFIX]", "[SUFFIX]", None),
        stops=("</s>",),
        names=("mistral7b",),
        known_by="name",
        evidence="memory",
    ),
    FamilyRow(
        name="codegemma",
        order="psm",
        sentinels=_roles(*_PIPED, {"sep": "<|file_separator|>"}),
        stops=("<eos>", "<end_of_turn>"),
        names=("codegemma",),
        repository=RepositoryLayout(first_separated=False, cursor_titled=False),
    ),
    FamilyRow(
        name="granite4",
        order="psm",
        sentinels=_roles(*_PIPED),
        stops=("<|end_of_text|>", "<|fim_pad|>"),
        names=("granite4",),
        architectures=("granitehybrid",),
    ),
    # Hosted, in case its weights are published.
    FamilyRow(
        name="mercury",
        order="psm",
        sentinels=_roles(*_PIPED, {"sep": "<|file_sep|>"}),
        stops=("<|endoftext|>", "<|fim_pad|>"),
        names=("mercury",),
        repository=_PATHS,
    ),
    # Its report (arXiv:2506.03524) says suffix first.
    FamilyRow(
        name="seed-coder",
        order="spm",
        sentinels=_roles("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"),
        stops=("<[end▁of▁sentence]>",),
        names=("seedcoder",),
    ),
    FamilyRow(
        name="glm-4.5",
        order="psm",
        sentinels=_roles(*_CODE),
        stops=("<|endoftext|>", "<|user|>"),
        names=("glm4.5", "glm4.6", "glm4.7"),
        architectures=("glm4moe",),
    ),
    # A chat model: the hole is a user's turn, and the answer the middle.
    FamilyRow(
        name="codegeex4",
        order="spm",
        sentinels=_roles(*_CODE, {"user": "<|user|>", "assistant": "<|assistant|>"}),
        stops=("<|endoftext|>", "<|observation|>"),
        names=("codegeex",),
        repository=RepositoryLayout(
            title="###REFERENCE:\n###PATH:",
            cursor_titled=False,
            cursor_header="###PATH:{path}\n###LANGUAGE:{language}\n###MODE:BLOCK\n",
        ),
        known_by="name",
    ),
    FamilyRow(
        name="falcon-h1-tiny-coder",
        order="psm",
        sentinels=_roles("<|prefix|>", "<|suffix|>", "<|middle|>"),
        stops=("<|end_of_text|>", "<|endoftext|>", "<|im_end|>"),
        names=("falconh1tinycoder",),
        known_by="name",
        evidence="memory",
    ),
)

# Models that have a family's tokens and were not trained with them: parts of the name, all of
# which must occur. Yi-Coder: ollama#8320.
UNTRAINED: tuple[tuple[str, ...], ...] = (
    ("yicoder",),
    ("codellama", "python"),
    ("codellama", "34b"),
)
