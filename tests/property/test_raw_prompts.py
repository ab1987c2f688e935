"""Prompts with sentinels in text, against how a client writes them.

F1: whatever a user's text has in it, the hole is the client's or the prompt is refused.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from suture.server.errors import InvalidRequest
from suture.server.prompt.families import FAMILIES, FamilyRow
from suture.server.routes.raw_prompts import Hole, read_opened_hole, read_raw_hole

ROWS = st.sampled_from(FAMILIES)


def written(row: FamilyRow, role: str) -> str:
    """A sentinel as a client writes it; CodeLlama's makers put a blank beside each."""
    text = row.sentinels.get(role, "")  # type: ignore[call-overload]
    if not text.startswith("▁"):
        return str(text)
    bare = text.removeprefix("▁")
    return f"{bare} " if role == "pre" else f" {bare}"


def rendered(row: FamilyRow, prefix: str, suffix: str) -> str:
    before, behind = written(row, "pre") + prefix, written(row, "suf") + suffix
    return "".join((before, behind) if row.order == "psm" else (behind, before)) + written(
        row, "mid"
    )


def has_sentinel(row: FamilyRow, text: str) -> bool:
    return any(sentinel.lstrip("▁") in text for sentinel in row.sentinels.values())


@st.composite
def texts(draw: st.DrawFn, row: FamilyRow) -> str:
    """Text in which sentinels of any family may stand, whole and cut."""
    sentinels = [text.lstrip("▁") for one in FAMILIES for text in one.sentinels.values()]
    own = [text.lstrip("▁") for text in row.sentinels.values()]
    pieces = st.one_of(
        st.text(st.characters(codec="utf-8"), max_size=8),
        st.sampled_from(["\n", " ", "<|", "|>", "<", "def f("]),
        st.sampled_from(sentinels),
        st.sampled_from(own),
        st.sampled_from(own).map(lambda text: text[1:]),
    )
    return "".join(draw(st.lists(pieces, max_size=5)))


@settings(max_examples=300, deadline=None)
@given(data=st.data(), row=ROWS)
def test_f1_a_users_text_never_makes_another_hole_of_a_prompt(
    data: st.DataObject, row: FamilyRow
) -> None:
    prefix, suffix = data.draw(texts(row)), data.draw(texts(row))
    prompt = rendered(row, prefix, suffix)
    for read in (read_opened_hole, read_raw_hole):
        try:
            hole = read(prompt, row.name)
        except InvalidRequest:
            assert has_sentinel(row, prefix) or has_sentinel(row, suffix)
        else:
            assert hole == Hole(prefix, suffix)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), row=ROWS)
def test_a_sentinel_that_a_text_does_not_begin_with_is_text(
    data: st.DataObject, row: FamilyRow
) -> None:
    text = "x" + data.draw(texts(row))
    assert read_opened_hole(text, row.name) is None
