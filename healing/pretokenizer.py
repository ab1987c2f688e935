"""Where a tokenizer's regular expressions split text before any merging.

The expressions speak of Unicode categories, which `re` lacks. So text is first cast into its
*shadow*: one ASCII character for each character, of the same kind as far as the expressions can
tell. Expressions are applied as a tokenizer applies them: each one splits the fragments that the
one before left, and what lies between two matches is a fragment too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

# Stand-ins for what is not ASCII. ASCII stands for itself, but for these eight characters.
_LETTER, _SCRIPT, _MARK, _PUNCTUATION, _SYMBOL, _OTHER, _KANA, _NUMBER = "\1\2\3\4\5\6\7\b"
_CONTROLS = str.maketrans(dict.fromkeys(map(chr, range(1, 9)), _OTHER))
_SPACES = frozenset("\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(point) for point in range(0x2000, 0x200B)
}

_L = r"A-Za-z\x01\x02\x07"
# Unicode's numbers. Where an expression says [0-9], a half is none.
_N = r"0-9\x08"
_P = r"!\"#%&'()*,\-./:;?@\[\\\]_{}\x04"
_S = r"$+<=>^`|~\x05"
_CONTRACTION = r"'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL]"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{_L}]+| ?[{_N}]+| ?[^\s{_L}{_N}]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"A-Z\x01\x02\x03\x07", r"a-z\x01\x02\x03\x07"
_CASED = rf"[^\r\n{_L}{_N}]?(?:[{_UPPER}]*[{_LOWER}]+|[{_UPPER}]+[{_LOWER}]*)(?:{_CONTRACTION})?"
_CASED_TAIL = rf"| ?[^\s{_L}{_N}]+[\r\n/]*|{_BLANKS}"


def _llama3(digits: str, letters: str = _L) -> str:
    return (
        rf"{_CONTRACTION}|[^\r\n{_L}{_N}]?[{letters}]+|{digits}"
        rf"| ?[^\s{letters}{_N}]+[\r\n]*|{_BLANKS}"
    )


_FAMILIES: dict[str, tuple[str, ...]] = {
    "gpt2": (_GPT2,),
    "starcoder": (rf"[{_N}]", _GPT2),
    "qwen2": (_llama3(rf"[{_N}]"),),
    "qwen35": (_llama3(rf"[{_N}]", rf"{_L}\x03"),),
    "llama3": (_llama3(rf"[{_N}]{{1,3}}"),),
    "minicpm5": (rf"[{_N}]{{1,3}}", _llama3(rf"[{_N}]+")),
    "deepseek-coder": (r"[\r\n]", rf"\s?[{_L}]+", rf"\s?[{_P}]+", r"[\x02]+", rf"[{_N}]"),
    "deepseek-llm": (
        r"[\r\n]",
        r"\s?[A-Za-z\x01]+",
        r"\s?[!-/:-~\x04]+",
        r"\s+$",
        r"[\x02]+",
        rf"[{_N}]+",
    ),
    "deepseek-v3": (
        rf"[{_N}]{{1,3}}",
        r"[\x02\x07]+",
        rf"[!-/:-@\[-`{{-~][A-Za-z]+|[^\r\n{_L}{_P}{_S}]?[{_L}\x03]+"
        rf"| ?[{_P}{_S}]+[\r\n]*|{_BLANKS}",
    ),
    "falcon": (rf"[{_P}$+<=>^~|`]+", _GPT2, "[0-9]{3}"),
    "default": (rf"[{_P}$+<=>^~|]+", _GPT2, rf"[{_N}]+", "[0-9]{3}"),
    "gpt-4o": (rf"{_CASED}|[{_N}]{{1,3}}{_CASED_TAIL}",),
    "tekken": (rf"{_CASED.removesuffix(f'(?:{_CONTRACTION})?')}|[{_N}]{_CASED_TAIL}",),
}
_FAMILY_OF = {name: name for name in _FAMILIES} | {
    name: family
    for family, names in {
        "gpt2": "gpt-2 phi-2 mpt olmo jais gigachat mellum modern-bert jina-v2-code roberta-bpe"
        " trillion granite-docling a.x-4.0",
        "starcoder": "refact command-r smollm codeshell exaone minerva-7b mellum2",
        "qwen2": "deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open grok-2 megrez",
        "llama3": "llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx"
        " smaug-bpe chatglm-bpe glm4 glm5",
        "deepseek-v3": "hunyuan-dense joyai-llm hy_v4",
        "gpt-4o": "llama4 kanana2 talkie minimax-m2",
    }.items()
    for name in names.split()
}
UNKNOWN = "unknown"
_SHORT = "'s|'t|'re|'ve|'m|'ll|'d"
_FINAL_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_FOLDED = (
    rf"(?i:{_SHORT})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|%s"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_FINAL_BLANKS}"
)
# Expressions as tokenizers spell them. Tiktoken's take final blanks as one, which only matters
# where nothing is certain anyway.
_FAMILY_OF_PATTERN = {
    rf"{_SHORT}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+": "gpt-2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt-2",
    _FOLDED % r"\p{N}": "qwen2",
    _FOLDED % r"\p{N}{1,3}": "llama-bpe",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s": "llama-bpe",
}
_EXPLICIT = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?%s+|%s"
    rf"| ?[^\s\p{{N}}%s]+[\r\n]*|{_FINAL_BLANKS}"
)
# Families as one expression over Unicode. Where digits are split off first, the blanks before one
# end their fragment and stay together.
_PATTERN_OF_FAMILY = {
    "gpt2": rf"{_SHORT}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
    "starcoder": rf"\p{{N}}|{_SHORT}| ?\p{{L}}+| ?[^\s\p{{L}}\p{{N}}]+"
    r"|\s+(?=\p{N})|\s+(?!\S)|\s+",
    "qwen2": _EXPLICIT % (r"\p{L}", r"\p{N}", r"\p{L}"),
    "qwen35": _EXPLICIT % (r"[\p{L}\p{M}]", r"\p{N}", r"\p{L}\p{M}"),
    "llama3": _EXPLICIT % (r"\p{L}", r"\p{N}{1,3}", r"\p{L}"),
}
# Their expressions list characters of other scripts one by one; a shadow is too coarse for that.
_ASCII_FAMILIES = frozenset({"deepseek-llm", "deepseek-v3"})
# Whatever one types next begins like one of these; two characters, because a run of blanks is
# split before its last one and a contraction has two letters.
_CONTINUATIONS = (
    *(first + second for first in " \na\1\2" for second in "a. \n0"),
    *("e", "l", "s", "A", "0", "00", "000", ".", "/", "'s", "\t", *"\3\4\5\6\7\b"),
)
_ANCHOR = re.compile(rf"[{_L}{_N}](?=\s)", re.ASCII)


def family_of_pattern(pattern: str) -> str:
    """The family that splits by exactly this expression, `UNKNOWN` if there is none."""
    return _FAMILY_OF_PATTERN.get(pattern, UNKNOWN)


def pattern_of(name: str) -> str | None:
    """One expression over Unicode that splits as the family of that name, if there is one."""
    return _PATTERN_OF_FAMILY.get(_FAMILY_OF.get(name, UNKNOWN))


class Pretokenizer:
    """The splitting rules of one family; `known` is false where we have none for the name."""

    def __init__(self, name: str) -> None:
        family = _FAMILY_OF.get(name)
        expressions = _FAMILIES[family] if family is not None else ()
        self.known = family is not None
        self._is_ascii = family in _ASCII_FAMILIES
        self._expressions = [re.compile(expression, re.ASCII) for expression in expressions]

    def knows(self, text: str) -> bool:
        """Whether the splits of `text` are those of the tokenizer, character by character."""
        return self.known and (text.isascii() or not self._is_ascii)

    def anchors(self, text: str) -> list[int]:
        """Character indices at which every continuation and every left context splits: a blank
        after a letter or digit."""
        return [match.end() for match in _ANCHOR.finditer(shadow(text))] if self.known else []

    def stable_starts(self, text: str) -> tuple[list[int], int]:
        """Starts of the pretokens of `text` that no continuation moves, and where certainty ends.

        `text` begins at a split. The last start begins the first pretoken whose end is open; up
        to the returned index it is split nowhere, whatever follows.
        """
        cast = shadow(text)
        splits = [self._starts(cast + more, len(cast)) for more in _CONTINUATIONS]
        shared = _common_prefix(splits)
        opens = [split[len(shared)] for split in splits if len(split) > len(shared)]
        return shared, min(opens, default=len(cast))

    def split(self, text: str) -> list[str]:
        """The pretokens of `text`, in order."""
        bounds = [*self._starts(shadow(text), len(text)), len(text)]
        return [text[a:b] for a, b in pairwise(bounds) if a < b]

    def starts(self, text: str) -> list[int]:
        """Character indices at which the pretokens of `text` start."""
        return self._starts(shadow(text), len(text))

    def _starts(self, cast: str, up_to: int) -> list[int]:
        """Starts of the fragments of a shadow, none past `up_to`."""
        bounds = [0, len(cast)]
        for expression in self._expressions:
            bounds = [0, *_split_once(expression, cast, bounds)]
        return [start for start in bounds[:-1] if start <= up_to]


def shadow(text: str) -> str:
    """`text` with every character replaced by the ASCII one that stands for its kind."""
    if text.isascii():
        return text.translate(_CONTROLS)
    return "".join(map(_stand_in, text.translate(_CONTROLS)))


def _stand_in(character: str) -> str:
    if character.isascii():
        return character
    if character in _SPACES:
        return "\v"
    category = unicodedata.category(character)
    if category[0] == "L":
        return _letter_stand_in(character, category)
    return {"N": _NUMBER, "M": _MARK, "P": _PUNCTUATION, "S": _SYMBOL}.get(category[0], _OTHER)


def _letter_stand_in(character: str, category: str) -> str:
    if "\u3040" <= character <= "\u30ff":
        return _KANA
    in_script = "\u0800" <= character <= "\u9fa5" or "\uac00" <= character <= "\ud7ff"
    return _SCRIPT if category == "Lo" and in_script else _LETTER


def _split_once(expression: re.Pattern[str], cast: str, bounds: Sequence[int]) -> Iterator[int]:
    """Ends of the fragments that `expression` makes of the given ones."""
    for start, end in pairwise(bounds):
        done = start
        for match in expression.finditer(cast[start:end]):
            if start + match.start() > done:
                yield start + match.start()
            done = start + match.end()
            yield done
        if done < end:
            yield end


def _common_prefix(splits: Iterable[Sequence[int]]) -> list[int]:
    shared = []
    for starts in zip(*splits, strict=False):
        if len(set(starts)) > 1:
            break
        shared.append(starts[0])
    return shared
