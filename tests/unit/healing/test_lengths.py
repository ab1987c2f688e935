"""Lengths of texts in one number."""

from hypothesis import given
from hypothesis import strategies as st

from suture.healing.lengths import lengths_of, n_bytes, n_chars, n_utf16


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_t11_the_sum_of_lengths_is_that_of_the_joined_text(texts: list[str]) -> None:
    lengths, joined = sum(map(lengths_of, texts)), "".join(texts)

    assert n_chars(lengths) == len(joined)
    assert n_bytes(lengths) == len(joined.encode())
    assert n_utf16(lengths) == len(joined.encode("utf-16-le")) // 2
