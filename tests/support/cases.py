"""Small inputs that have broken systems of this kind, and what of them a vocabulary gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from suture.healing import Detokenizer, TokenHealer, TokenTransducer, Vocabulary, stable_boundary

Ids = tuple[int, ...]

# Text left of a cursor, and what may be typed next.
TYPED = [
    *("const userNa", "    retu", "import nump", "np.linal", "def is_palindro", "an intermed"),
    *("string_sequenc", "https:", "print('Hello, wo", "x = foo(", "the ", "if x:\n    "),
    *("if x:\n\t", "a\n ", "#####", "/**", '{"na', "self.asser", "for i in rang"),
    *("from collections impor", "é", "print('🎉", "我很感", "0x1f", "12345", "don'", "<"),
    *("<|fim_middle", "", "i", "Answer:", "Answer: ", "The link is http:", "x = a:"),
]
NEXT = [
    *("", "me", "rn", "y", "g", "iate", "e", "//", "rld", "tEqual", "t", "谢", "f", ")", "()"),
    *(" ", "\n", "\nb", "  x", "\t", "#", "*/", "0", "|>", "\u0301", "name"),
]

# Streams: the tokens, the stop strings, and the right deltas.
STREAMS: list[tuple[str, list[str], list[str], int, list[str]]] = [
    # name, token bytes, stop strings, min_tokens, deltas with the flush last
    ("Burmese", ["e1", "80", "99", "e180", "84"], [], 0, ["", "", "မ", "", "င", ""]),
    (
        "URGENCY and a chilli",
        ["55524745", "4e", "43", "59", "f09f", "8cb6", "efb88f"],
        [],
        0,
        ["URGE", "N", "C", "Y", "", "🌶", "\ufe0f", ""],
    ),
    ("stop as one token", ["3c2f616e737765723e"], ["</answer>"], 0, ["", ""]),
    (
        "stop in five, fused at both ends",
        ["783c2f", "61", "6e7377", "6572", "3e79"],
        ["</answer>"],
        0,
        ["x", "", "", "", "", ""],
    ),
    ("stop across tokens", ["61454e", "4462"], ["END"], 0, ["a", "", ""]),
    ("earlier stop under min_tokens", ["456e640a", "456e640a78"], ["End\n"], 2, ["End\n", "", ""]),
    ("two stops in one step", ["785354", "4f50455f"], ["STOP", "TO"], 0, ["x", "S", ""]),
    ("unfinished character, then a letter", ["f09f", "41"], [], 0, ["", "\ufffdA", ""]),
    ("a byte that begins no character", ["f5", "62"], [], 0, ["\ufffd", "b", ""]),
    ("a real U+FFFD", ["efbfbd"], [], 0, ["\ufffd", ""]),
]


def boundary_faults(vocabulary: Vocabulary, encode: Callable[[bytes], Ids]) -> Iterator[object]:
    """Texts cut after every byte where the cut loses bytes or a token changes that was kept."""
    for typed in TYPED:
        data = typed.encode()
        continued = [encode(data + more.encode()) for more in NEXT]
        for end in range(len(data) + 1):
            cut = stable_boundary(data[:end], encode, vocabulary)
            spelled = b"".join(map(vocabulary.bytes_of, cut.kept_ids)) + cut.pending
            if spelled not in (data[:end], b" " + data[:end]):
                yield data[:end], "B1", spelled
            if any(ids[: len(cut.kept_ids)] != cut.kept_ids for ids in continued):
                yield data[:end], "B2", spelled


def healing_faults(vocabulary: Vocabulary, encode: Callable[[bytes], Ids]) -> Iterator[object]:
    """Texts whose own tokens, with what may be typed next, are forbidden to the healed model.

    `x = a:` and then `//` must be allowed too, in as many steps as the vocabulary takes.
    """
    for typed in TYPED:
        boundary = stable_boundary(typed.encode(), encode, vocabulary)
        for more in NEXT:
            healer = TokenHealer(vocabulary, boundary.pending)
            for token_id in encode((typed + more).encode())[len(boundary.kept_ids) :]:
                # Markup that the tokenizer makes of text is never drawn.
                if healer.done or vocabulary.rank[token_id] < 0:
                    break
                if not healer.constraint().allows(token_id):
                    yield typed, more, token_id
                    break
                healer.consume(token_id)


def stream_faults(vocabulary: Vocabulary) -> Iterator[object]:
    """Streams, in the tokens that there are, whose deltas are not the right ones."""
    for name, pieces, stops, min_tokens, deltas in STREAMS:
        spelled = [_tokens_of(vocabulary, bytes.fromhex(piece)) for piece in pieces]
        # Given for one token a piece; as many pieces as before, in more tokens.
        n_early = sum(map(len, spelled[: min_tokens - 1])) if min_tokens else 0
        detokenizer = Detokenizer(
            TokenTransducer(vocabulary, stops), min_tokens=n_early + 1 if min_tokens else 0
        )
        streamed = ["".join(map(detokenizer.feed, ids)) for ids in spelled]
        if [*streamed, detokenizer.flush()] != deltas:
            yield name, streamed


def _tokens_of(vocabulary: Vocabulary, piece: bytes) -> list[int]:
    """The one token that is `piece`, or the tokens of its bytes.

    Some vocabularies cannot say F5; another byte that begins no character takes its place.
    """
    whole = vocabulary.ids_of(piece)
    if whole:
        return [whole[0]]
    hopeless = next(byte for byte in b"\xf5\xc0\xff\x80" if byte in vocabulary.single_bytes)
    return [vocabulary.ids_of(bytes([hopeless if b == 0xF5 else b]))[0] for b in piece]
