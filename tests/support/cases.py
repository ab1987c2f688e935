"""Small inputs that have broken systems of this kind."""

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
