"""A prompt as text, for servers that take no token ids.

Control tokens stand in it by the text that the server's tokenizer makes them of again.

F1  No control token comes out of the user's text: where that has the text of one, a character that
    takes no place (U+200B) is put into it.
F2  The token that a text begins with is left out: the server puts its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from suture.healing import Vocabulary

_NO_PLACE = "\u200b"


def shown_prompt(prompt_ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """The prompt as text; bytes that are no text are U+FFFD."""
    ids = tuple(prompt_ids)
    if vocabulary.add_bos and ids[:1] == (vocabulary.bos_id,):
        ids = ids[1:]
    return "".join(
        vocabulary.text_of(control) if control is not None else text
        for control, text in parts_of(ids, vocabulary)
    )


def parts_of(prompt_ids: Sequence[int], vocabulary: Vocabulary) -> Iterator[tuple[int | None, str]]:
    """The prompt's control tokens, each with "", and the texts between, each with None."""
    controls = vocabulary.control_ids
    for token_id, run in groupby(prompt_ids, lambda i: i if i in controls else None):
        if token_id is not None:
            yield from ((i, "") for i in run)
            continue
        data = b"".join(map(vocabulary.bytes_of, run))
        yield None, _plain(data.decode("utf-8", "replace"), vocabulary)


def _plain(text: str, vocabulary: Vocabulary) -> str:
    """The text, of which no tokenizer makes a control token."""
    pattern = _control_texts(vocabulary)
    return pattern.sub(lambda match: match[0][:1] + _NO_PLACE + match[0][1:], text)


@lru_cache(maxsize=4)
def _control_texts(vocabulary: Vocabulary) -> re.Pattern[str]:
    texts = {vocabulary.text_of(i) for i in vocabulary.control_ids}
    # A lone character cannot be broken up, and is no sentinel of anybody's.
    longest_first = sorted((t for t in texts if len(t) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
