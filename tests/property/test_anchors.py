"""The anchor layout: what stays while one types, and what the prompt still says."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.toy_tokenizer import QWEN_CONTROLS, ToyTokenizer
from suture.server.prompt.anchors import MAX_LINES, MAX_REMEMBERED, MAX_TYPED, Anchor, Anchors
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.extra import ExtraParts
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.prompt.windows import cursor_windows
from suture.server.request import CompletionRequest, ExtraText

TOY = ToyTokenizer((" user", " userName", "Na", "\n    ", "\n\n", "    "), QWEN_CONTROLS)
FAMILY = detect_family(TOY.vocabulary, "")
ABOVE = "".join(f"line {n} = value {n}\n" for n in range(30))
BELOW = "\n" + "".join(f"after {n}()\n" for n in range(30))
TYPED = "def add(self, user):\n    return self.userName(\n\n    # done: 1\nx = 1\n"


def planned(
    prefix: str, suffix: str, anchors: Anchors, *, room: int = 400, **fields: object
) -> PromptPlan:
    request = CompletionRequest(
        prefix,
        suffix,
        infill=True,
        layout="anchor",
        max_tokens=16,
        **fields,  # type: ignore[arg-type]
    )
    # One token a millisecond: the room is as many tokens as milliseconds, in its own steps.
    budget = PromptBudget(4096, prefill_tokens_per_s=1000, first_text_ms=room)
    return plan_prompt(request, TOY.vocabulary, FAMILY, TOY.encode, budget, anchors)


def spelled(ids: Sequence[int]) -> bytes:
    return b"".join(map(TOY.vocabulary.bytes_of, ids))


def parts(plan: PromptPlan) -> dict[str, bytes]:
    found, at = {}, 0
    for role, n_tokens in plan.segments:
        found[role] = spelled(plan.kept_ids[at : at + n_tokens])
        at += n_tokens
    return found


def n_new(before: PromptPlan, after: PromptPlan) -> int:
    """How many tokens of the prompt are not those of the one before."""
    n_common = 0
    for a, b in zip(before.kept_ids, after.kept_ids, strict=False):
        if a != b:
            break
        n_common += 1
    return len(after.kept_ids) - n_common


def says_the_document(plan: PromptPlan, prefix: str, suffix: str) -> None:
    """P1, P2 and what is pending are the text before the cursor, S is the one behind it."""
    found = parts(plan)
    before = found["prefix"] + found["typed"] + plan.pending
    assert prefix.encode().endswith(before)
    assert suffix.encode().startswith(found["suffix"])
    assert plan.windows.prefix.text.encode() == before
    assert plan.windows.suffix.text.encode() == found["suffix"]
    assert plan.layout == "anchor"


def test_the_parts_stand_in_their_order() -> None:
    plan = planned(ABOVE + "x = us", BELOW, Anchors())

    roles = [role for role, n in plan.segments if n or role in ("pre", "suf", "mid")]
    assert roles == ["pre", "prefix", "suf", "suffix", "mid", "typed"]
    says_the_document(plan, ABOVE + "x = us", BELOW)


@pytest.mark.parametrize("above", ["", "\n", "x\n", ABOVE])
@pytest.mark.parametrize("below", ["", "\n", BELOW])
@pytest.mark.parametrize("room", [200, 400, 4000])
def test_a_key_adds_its_own_tokens_and_no_others(above: str, below: str, room: int) -> None:
    anchors = Anchors()
    before = planned(above, below, anchors, room=room)
    n_tokens = []
    for n_keys in range(1, len(TYPED) + 1):
        prefix = above + TYPED[:n_keys]
        plan = planned(prefix, below, anchors, room=room)
        says_the_document(plan, prefix, below)
        n_tokens.append(n_new(before, plan))
        before = plan

    # Over five line ends too; the toy's tokens are single bytes, and a cut may go back some.
    assert sorted(n_tokens)[len(n_tokens) * 9 // 10] <= 3
    if room >= 400:
        assert max(n_tokens) <= 12


def test_the_anchor_stays_over_some_lines_and_then_moves() -> None:
    anchors = Anchors()
    heads = []
    for n_lines in range(3 * MAX_LINES):
        prefix = ABOVE + "y = 2\n" * n_lines
        plan = planned(prefix, BELOW, anchors, room=4000)
        says_the_document(plan, prefix, BELOW)
        heads.append(parts(plan)["prefix"])

    assert len(set(heads)) <= 4
    assert heads[0] == heads[MAX_LINES - 1]


def test_backspace_and_a_jump_back_find_their_anchors_again() -> None:
    anchors = Anchors()
    first = planned(ABOVE + "x = user", BELOW, anchors)
    elsewhere = ABOVE[:200]
    planned(elsewhere, ABOVE[200:] + BELOW, anchors)
    again = planned(ABOVE + "x = use", BELOW, anchors)

    assert parts(again)["prefix"] == parts(first)["prefix"]
    assert parts(again)["suffix"] == parts(first)["suffix"]


def test_another_suffix_or_setting_has_another_anchor() -> None:
    anchors = Anchors()
    prefix = ABOVE + "x = "
    planned(prefix, BELOW, anchors)
    changed = planned(prefix, "y" + BELOW, anchors)
    says_the_document(changed, prefix, "y" + BELOW)
    shorter = planned(prefix, "\nafter", anchors)
    says_the_document(shorter, prefix, "\nafter")
    assert shorter.truncated is False or shorter.windows.prefix.truncated


EXTRA = tuple(ExtraText("b = 1\n" * 60, f"{name}.py") for name in "bcd")
LINES = ABOVE.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("sent", "extra", "room"),
    [
        pytest.param([ABOVE + "x = 1\ny = ", ABOVE + "x = 1\ny = 2\nz = "], (), 400, id="anchor"),
        pytest.param(["".join(LINES[n:]) + "x = " for n in range(3)], (), 4000, id="clipped"),
        pytest.param(["x = ", "y = "], EXTRA, 100, id="warmed"),
    ],
)
def test_texts_of_another_salt_are_not_known(
    sent: list[str], extra: tuple[ExtraText, ...], room: int
) -> None:
    """Who sends what another one has sent gets the prompt that it would get alone."""

    def ask(prefix: str, anchors: Anchors, salt: str | None) -> PromptPlan:
        return planned(prefix, BELOW, anchors, room=room, extra=extra, cache_salt=salt)

    anchors = Anchors()
    for prefix in sent[:-1]:
        ask(prefix, anchors, "blue")
        anchors.warmed.add(extra, "blue")
    alone = ask(sent[-1], Anchors(), None)

    assert ask(sent[-1], anchors, "red") == ask(sent[-1], anchors, None) == alone
    assert ask(sent[-1], anchors, "blue") != alone


PARAGRAPH = "# Title\n\n" + "A long paragraph of prose. " * 20 + "\n"


def test_a_long_line_above_the_cursor_leaves_a_prefix_and_no_other_document_takes_its_anchor() -> (
    None
):
    anchors = Anchors()
    other = "import os\ndef other_file():\n    return os.get"
    for prefix in (PARAGRAPH, PARAGRAPH + "Th", PARAGRAPH + "The next", other):
        plan = planned(prefix, "", anchors, room=200)
        says_the_document(plan, prefix, "")
        assert len(plan.windows.prefix.text) >= min(len(prefix), 64)
    assert plan.windows.prefix.text == other
    assert not plan.truncated


def test_an_anchor_whose_text_may_stand_anywhere_is_found_in_no_other_document() -> None:
    anchors = Anchors()
    anchors.remember(Anchor("}\n", (), False, "", (), True, ExtraParts(), None))
    windows = cursor_windows(ABOVE + "}\nif x", "", 10_000)
    assert anchors.find(windows, None) == []


def test_a_cursor_at_the_start_of_a_line_gives_its_line_end_back() -> None:
    """A line's start is no stable cut: the line end may be one token with what comes."""
    plan = planned("def add(a):\n", "\n", Anchors())

    assert plan.pending.startswith(b"\n")
    assert not parts(plan)["prefix"].endswith(b"\n")


@pytest.mark.parametrize("blank", ["\n    ", "\n\n", "\n\n    "])
def test_a_blank_line_is_pending_from_the_anchor_on(blank: str) -> None:
    plan = planned("def add(a):" + blank, "\n", Anchors())

    assert plan.pending == blank.encode()
    assert parts(plan)["typed"] == b""


@pytest.mark.parametrize("typed", ["", "d", "def ad"])
def test_on_the_first_line_pending_starts_at_the_anchor_or_behind_it(typed: str) -> None:
    anchors = Anchors()
    plan = planned(typed, "\n", anchors)

    assert parts(plan)["prefix"] == b""
    assert parts(plan)["typed"] + plan.pending == typed.encode()
    assert parts(planned(typed + "d", "\n", anchors))["prefix"] == b""


@pytest.mark.parametrize(
    ("opener", "closer"),
    [("(", ")"), ("[{", "}]"), ("('", "')"), ("({ ", " })"), ('"""', '"""'), ("{", "}  ")],
)
def test_an_auto_closed_bracket_changes_only_what_is_typed(opener: str, closer: str) -> None:
    anchors = Anchors()
    before = planned(ABOVE + "x = foo", BELOW, anchors)
    prefix = ABOVE + "x = foo" + opener
    closed = planned(prefix, closer + BELOW, anchors)

    says_the_document(closed, prefix, BELOW)
    assert (closed.rest, before.rest) == (closer, "")
    assert n_new(before, closed) <= len("x = foo" + opener)
    assert parts(closed)["suffix"] == parts(before)["suffix"]
    first = closed.windows.suffix.document_offset(0)
    assert first == len(prefix + closer)
    # The closer is typed, over the one that stands there.
    over = planned(prefix + closer, BELOW, anchors)
    assert n_new(closed, over) <= len(opener + closer)
    # What is asked at first is the same with the closer and without.
    fresh = planned(prefix, closer + BELOW, Anchors())
    assert fresh.kept_ids == planned(prefix, BELOW, Anchors()).kept_ids


def test_only_closers_alone_are_left_out_and_only_of_answers_that_are_shaped() -> None:
    prefix = ABOVE + "x = foo("
    for suffix in (");" + BELOW, ", a)" + BELOW, "\n)" + BELOW):
        plan = planned(prefix, suffix, Anchors(), room=4000)
        assert plan.rest == ""
        says_the_document(plan, prefix, suffix)
    raw = planned(prefix, ")" + BELOW, Anchors(), shape="raw")
    ids_only = planned(prefix, ")" + BELOW, Anchors(), detokenize=False)
    assert raw.rest == ids_only.rest == ""
    assert parts(raw)["suffix"].startswith(b")")


def test_left_out_closers_join_no_line_end() -> None:
    """A CR before the cursor and an LF behind the closers are two line ends."""
    plan = planned("x\r", ")\nafter", Anchors())

    assert plan.rest == ""
    assert plan.windows.prefix.text + plan.windows.suffix.text == "x\n)\nafter"
    crlf = planned("x\r\nfoo(", ") \r\nafter", Anchors())
    assert crlf.rest == ") "
    assert crlf.windows.suffix.text == "\nafter"
    assert crlf.windows.suffix.document_offset(1) == len("x\r\nfoo() \r\n")


def test_an_empty_file_has_an_empty_prompt_but_for_sentinels() -> None:
    plan = planned("", "", Anchors())

    assert (plan.pending, [role for role, n in plan.segments if n]) == (b"", ["pre", "suf", "mid"])


def test_a_long_line_is_anchored_inside_in_steps() -> None:
    anchors = Anchors()
    line = "".join(f"{n} + " for n in range(700))
    heads = []
    for n_chars in range(0, len(line), 7):
        plan = planned(ABOVE + line[:n_chars], BELOW, anchors, room=4000)
        says_the_document(plan, ABOVE + line[:n_chars], BELOW)
        assert len(parts(plan)["typed"]) + len(plan.pending) <= MAX_TYPED
        heads.append(parts(plan)["prefix"])

    n_moves = sum(a != b for a, b in itertools.pairwise(heads))
    assert 5 < n_moves < 40


@pytest.mark.parametrize("give_back", [1, 3, 8])
def test_what_is_given_back_never_crosses_the_anchor(give_back: int) -> None:
    anchors = Anchors()
    first = planned(ABOVE + "x", BELOW, anchors)
    plan = planned(ABOVE + "x", BELOW, anchors, give_back=give_back)

    says_the_document(plan, ABOVE + "x", BELOW)
    assert parts(plan)["prefix"] == parts(first)["prefix"]


def test_the_anchors_kept_are_bounded() -> None:
    anchors = Anchors()
    for n in range(2 * MAX_REMEMBERED):
        planned(f"{n}\n" * 5, BELOW, anchors)

    assert len(anchors._anchors) == MAX_REMEMBERED


texts = st.lists(
    st.sampled_from(["a", " user", "Name", "\n", "    ", "(", ")", "é", "🎉", "\r\n", "y" * 50]),
    max_size=40,
).map("".join)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6), st.sampled_from([200, 600]))
def test_any_requests_one_after_the_other_say_their_documents(
    requests: list[tuple[str, str]], room: int
) -> None:
    anchors = Anchors()
    prefix = suffix = ""
    for more, below in requests:
        prefix, suffix = prefix + more, below if len(below) % 2 else suffix
        plan = planned(prefix, suffix, anchors, room=room)
        before = prefix.replace("\r\n", "\n")
        says_the_document(plan, before, suffix[len(plan.rest) :].replace("\r\n", "\n"))
        assert len(plan.kept_ids) <= max(room * 1.5, 192)
