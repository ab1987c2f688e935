"""Three lengths of a text in one number: for each token one sum is cheaper than three.

Low to high, 40 bits each: characters (code points), and how many more bytes of UTF-8 and UTF-16
units than those it has. A text longer than 2**38 characters would not fit.
"""

from __future__ import annotations

_FIELD = 40
_MASK = (1 << _FIELD) - 1


def lengths_of(text: str) -> int:
    """A text's lengths; those of two texts, joined, are the sum of both.

    >>> lengths = lengths_of("a😀") + lengths_of("é")
    >>> n_chars(lengths), n_bytes(lengths), n_utf16(lengths)
    (3, 7, 4)
    """
    n_more_bytes = len(text.encode()) - len(text)
    n_more_utf16 = len(text.encode("utf-16-le")) // 2 - len(text)
    return len(text) + (n_more_bytes << _FIELD) + (n_more_utf16 << 2 * _FIELD)


def n_chars(lengths: int) -> int:
    """Code points."""
    return lengths & _MASK


def n_bytes(lengths: int) -> int:
    """Bytes of UTF-8."""
    return n_chars(lengths) + (lengths >> _FIELD & _MASK)


def n_utf16(lengths: int) -> int:
    """UTF-16 units, in which editors count."""
    return n_chars(lengths) + (lengths >> 2 * _FIELD)
