"""Texts that break careless code, and hypothesis strategies made of them."""

from __future__ import annotations

from hypothesis import strategies as st

TRICKY_TEXTS = {
    "burmese": "မင်္ဂလာပါ၊ ကုဒ်ကို ပြန်စစ်ပါ",
    "thai": "ที่นี่มีน้ำใจ กรุณาอย่าเพิ่งตัดคำ",
    "devanagari": "क्षत्रिय श्रृंखला — ज्ञान र्‍य",
    "arabic": "قيمة \u202bx = 3\u202c؛ 'نص' # تعليق",
    "hebrew": "שָׁלוֹם \u200f(abc)\u200e 12%",
    "hangul jamo": "\u1112\u1161\u11ab\u1100\u1173\u11af vs 한글",
    "vietnamese": "Thu\u031b\u0323c hie\u0302\u0323n / Thực hiện",
    "zalgo": "c\u0315\u035c\u0301o\u0334\u0321de\u0489",
    "emoji": "我很感谢你的热情 👩‍👩‍👧‍👦 👨🏽‍💻 🏳️‍🌈 ❤️‍🔥",
    "flags": "🇩🇪🇲🇲🇮🇳🇺",
    "numbers, not digits": "½1234567 Ⅷ²12 x²3 ٣٤٥678",
    "keycap": "#️⃣ 1️⃣ ☂︎ ☂️",
    "cjk ext b": "𠮷野家 𪚥 𡃁 𠜎",
    "private use": "\ue0b0\U000f1234",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "bom inside": "\ufeffimport os\n\ufeffx",
    "nul": "a\x00b\x00",
    "literal fffd": "ok \ufffd\ufffd end\ufffd",
    "line ends": "if x:\r\n\treturn\r\r\n\n\x0b\x0c\x85\u2028\u2029",
    "indentation": "\n" + " " * 129 + "x\n" + "\t" * 40 + "y",
    "markers": "▁_\u2581\u2581 Ġ Ċ <0x41> <0x0A> ##ing",
    "sentinels": "<|fim_middle|> <fim_suffix> ▁<MID> </s> <|im_end",
    "quotes": "': 'search' \"it's\" don 't x != y , z .",
    "json bait": '"\\u0000\\ud83d" \u007f\u009f',
    "stop bait": "\n\n\nclass A:\n\n  def b(): pass\n\n\n\n",
}

ILL_FORMED = [
    bytes.fromhex(row)
    for row in (
        "80|BF|C080|C1BF|C3|C328|E080|E09FBF|E282|E228A1|EDA0|EDA080|EDBFBF|EDA0BDEDB880|EFBF|"
        "F0808080|F09F|F09F98|F09F41|F48FBF|F4908080|F5|F5808080|F7BFBFBF|F888808080|FC|FEFF|"
        "E180E2F09192F1BF|20F09F|3BE4"
    ).split("|")
]

_BYTE = st.sampled_from(
    bytes.fromhex("00 0A 20 41 61 62 7F 80 8F 90 9F A0 BF C2 E0 E4 ED F0 F4 F5")
)


def byte_strings(max_size: int = 12) -> st.SearchStrategy[bytes]:
    """Bytes of which many are ill-formed UTF-8, and some are tricky texts."""
    soup = st.lists(_BYTE, max_size=max_size).map(bytes)
    texts = st.sampled_from(list(TRICKY_TEXTS.values())).map(lambda text: text.encode()[:60])
    return st.one_of(soup, st.sampled_from(ILL_FORMED), texts)


def partitions(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """`data` cut into pieces, some of them empty."""
    cuts = st.lists(st.integers(0, len(data)), max_size=8).map(sorted)
    return cuts.map(lambda at: [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])


def code_texts() -> st.SearchStrategy[str]:
    """Source-like text: words, operators, blanks, line ends, contractions, other scripts."""
    atoms = [
        *("user", "Name", "userName", "return", "self", "numpy", "is_", "palindrome", "a", "é"),
        *(" ", "  ", "    ", "\n", "\r\n", "\t", "\n\n", "(", ")", ":", "''", "'", ".", "/", "#"),
        *(
            "0",
            "12",
            "345",
            "'s",
            "'re",
            "don't",
            "我很",
            "感谢",
            "👩‍👩",
            "မင်္",
            "<",
            "|",
            "_",
            "=",
            "\u00a0",
        ),
    ]
    return st.lists(st.sampled_from(atoms), max_size=12).map("".join)
