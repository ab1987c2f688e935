from itertools import product

from suture.healing import reference
from suture.healing.utf8 import incomplete_tail


def test_exactly_17651_prefixes_may_be_held() -> None:
    prefixes = reference.character_prefixes()

    assert [sum(len(p) == n for p in prefixes) for n in (1, 2, 3)] == [51, 1216, 16384]


def test_tail_equals_enumeration_for_all_strings_of_edge_bytes() -> None:
    edges = bytes.fromhex("00 41 7F 80 8F 90 9F A0 BF C0 C2 DF E0 E1 ED EF F0 F1 F4 F5 FF")

    for length in range(4):
        for data in map(bytes, product(edges, repeat=length)):
            assert incomplete_tail(data) == reference.incomplete_tail(data), data


def test_surrogate_prefix_is_not_held_although_cpython_holds_it() -> None:
    assert incomplete_tail(b"\xed\xa0") == 0
    assert incomplete_tail(b"\xed\x9f") == 2
