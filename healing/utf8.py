"""UTF-8 at the end of a byte string: which bytes may still become a character.

Exactly the proper prefixes of legal encodings may: 51 of one byte, 1,216 of two, 16,384 of
three. CPython's incremental decoder holds ``ED A0..BF`` too, though no surrogate is legal.
"""

from __future__ import annotations

# The only legal second bytes after these leads; every other lead takes 80..BF.
_SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def incomplete_tail(data: bytes) -> int:
    """Bytes (0 to 3) at the end of `data` that begin a character and do not finish it.

    >>> incomplete_tail(b"ok " + "é".encode()[:1])
    1
    """
    for n_tail in range(1, min(3, len(data)) + 1):
        lead = data[-n_tail]
        if lead & 0xC0 == 0x80:
            continue
        return n_tail if n_tail < _encoded_length(lead) and _second_is_legal(data, n_tail) else 0
    return 0


def _encoded_length(lead: int) -> int:
    if 0xC2 <= lead <= 0xDF:
        return 2
    if 0xE0 <= lead <= 0xEF:
        return 3
    return 4 if 0xF0 <= lead <= 0xF4 else 1


def _second_is_legal(data: bytes, n_tail: int) -> bool:
    if n_tail == 1:
        return True
    low, high = _SECOND.get(data[-n_tail], (0x80, 0xBF))
    return low <= data[1 - n_tail] <= high
