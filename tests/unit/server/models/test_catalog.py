from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.errors import ModelError
from suture.server.models.catalog import Catalog, expand_ranges, find_catalog
from suture.server.models.hub import HubFile
from suture.server.models.packages import PackageFile, PackagePart, Release

SHA = "ab" * 32
LINE = f"tiny  MIT  12  {SHA}  pypi:tiny==1.0/tiny/a.gguf"


def parse(text: str) -> Catalog:
    return Catalog.parse(text, "models.txt")


def test_a_line_gives_an_entry_and_comments_and_blank_lines_give_none() -> None:
    catalog = parse(f"# a comment\n\n  # another\n{LINE}\n")
    (entry,) = catalog.entries
    assert (entry.name, entry.licence, entry.n_bytes, entry.sha256) == ("tiny", "MIT", 12, SHA)
    assert entry.sources == (
        PackageFile(
            "pypi:tiny==1.0/tiny/a.gguf", (PackagePart(Release("tiny", "1.0"), "tiny/a.gguf"),)
        ),
    )


def test_the_first_line_is_the_default() -> None:
    assert parse(f"{LINE}\n{LINE.replace('tiny  ', 'other  ', 1)}").default.name == "tiny"


def test_a_licence_may_hold_single_spaces() -> None:
    assert parse(LINE.replace("MIT", "Llama 3 Community")).default.licence == "Llama 3 Community"


@pytest.mark.parametrize("space", [" ", "  ", "      "])
def test_sources_are_separated_by_space_of_any_width(space: str) -> None:
    entry = parse(f"{LINE}{space}hf:owner/repo/dir/b.gguf@v1{space}pypi:c==2/c.gguf").default
    assert [source.spec for source in entry.sources] == [
        "pypi:tiny==1.0/tiny/a.gguf",
        "hf:owner/repo/dir/b.gguf@v1",
        "pypi:c==2/c.gguf",
    ]


def test_a_hub_source_has_a_repository_a_path_and_a_revision() -> None:
    specs = "hf:owner/repo/dir/b.gguf@refs/pr/1 hf:owner/repo/b.gguf"
    pinned, unpinned = parse(f"h  MIT  -  -  {specs}").default.sources
    assert isinstance(pinned, HubFile) and isinstance(unpinned, HubFile)
    assert (pinned.repo, pinned.path, pinned.revision) == (
        "owner/repo",
        "dir/b.gguf",
        "refs/pr/1",
    )
    assert unpinned.revision == "main"


def test_a_dash_leaves_bytes_and_checksum_to_the_hub() -> None:
    entry = parse("h  MIT  -  -  hf:owner/repo/b.gguf").default
    assert (entry.n_bytes, entry.sha256) == (None, None)


def test_ranges_of_a_source_are_its_parts_in_order() -> None:
    source = parse(LINE.replace("tiny==1.0/tiny/a", "p{1..3}==1/p{1..3}/{08..10}")).default.sources[
        0
    ]
    assert isinstance(source, PackageFile)
    assert [(part.release.name, part.member) for part in source.parts] == [
        ("p1", "p1/08.gguf"),
        ("p2", "p2/09.gguf"),
        ("p3", "p3/10.gguf"),
    ]


@given(
    first=st.integers(0, 120),
    n=st.integers(1, 30),
    padding=st.integers(1, 4),
    texts=st.lists(st.text("abc/=.", max_size=4), min_size=2, max_size=4),
)
def test_ranges_expand_like_counting_by_hand(
    first: int, n: int, padding: int, texts: list[str]
) -> None:
    padded = str(first).zfill(padding)
    span = f"{{{padded}..{first + n - 1}}}"
    width = padding if padded.startswith("0") else 0
    expected = []
    for number in range(first, first + n):
        digits = str(number)
        while len(digits) < width:
            digits = "0" + digits
        expected.append(digits.join(texts))
    assert expand_ranges(span.join(texts)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tiny MIT 12", "expected name, licence, bytes, sha256 and sources"),
        (f"tiny  MIT  12  {SHA}", "expected name, licence, bytes, sha256 and sources"),
        *(
            (LINE.replace("tiny  ", f"{name}  ", 1), "expected a name of letters")
            for name in ("../tiny", "..", ".tiny", "/tiny", "a/b", "a\\b", "-tiny", "~", "a\0b")
        ),
        (LINE.replace("12", "12MB"), "expected a number of bytes or '-', not '12MB'"),
        (LINE.replace(SHA, "abc"), "expected a sha256 of 64 lowercase hex digits"),
        (LINE.replace(SHA, "-"), "expected a sha256: only a hub tells"),
        (LINE.replace("pypi:", "ftp:"), "expected a source that begins with hf: or pypi:"),
        (LINE.replace("==1.0", ""), "expected pypi:NAME==VERSION/PATH"),
        (LINE.replace("pypi:tiny==1.0/tiny/", "hf:repo/"), "expected hf:OWNER/REPO/PATH"),
        (LINE.replace("pypi:tiny==1.0/tiny/a", "hf:o/r/{1..2}"), "expected no range"),
        (LINE.replace("a.gguf", "{1..2}{1..3}"), "expected ranges of one length"),
        (LINE.replace("a.gguf", "{2..1}"), "expected 1 to 10000 parts in {2..1}"),
        (LINE.replace("a.gguf", "{1..x}"), "expected ranges like {1..22}"),
        (LINE.replace("a.gguf", "{1..999999999999}"), "expected 1 to 10000 parts"),
    ],
)
def test_a_malformed_line_says_where_and_what_was_expected(line: str, expected: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse(f"# head\n{line}\n")
    assert str(caught.value).startswith("models.txt:2: ")
    assert expected in str(caught.value)


def test_a_name_stands_once() -> None:
    with pytest.raises(ModelError, match=r"models.txt:2: expected a new name, 'tiny'"):
        parse(f"{LINE}\n{LINE}")


def test_an_unknown_name_is_told_the_nearest_names() -> None:
    catalog = parse("\n".join(LINE.replace("tiny", name, 1) for name in ("qwen2.5-coder", "smol")))
    with pytest.raises(ModelError, match=r"no model 'qwen-coder' .* nearest: qwen2\.5-coder"):
        catalog.find("qwen-coder")
    assert catalog.find("smol").name == "smol"


def test_an_explicit_file_comes_before_the_users_and_that_before_the_packaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explicit, user = tmp_path / "explicit.txt", tmp_path / "user.txt"
    (tmp_path / "models.txt").write_text(LINE.replace("tiny", "cwd", 1))
    monkeypatch.chdir(tmp_path)
    assert find_catalog(None, user) == Catalog.packaged()
    user.write_text(LINE.replace("tiny", "user", 1))
    explicit.write_text(LINE.replace("tiny", "explicit", 1))
    assert find_catalog(None, user).default.name == "user"
    assert find_catalog(explicit, user).default.name == "explicit"


def test_an_explicit_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.txt: No such file"):
        find_catalog(tmp_path / "none.txt", tmp_path / "user.txt")


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"\xff\xfe"])
def test_a_file_without_models_or_text_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "models.txt"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"models\.txt: expected"):
        Catalog.load(path)


def test_the_packaged_catalogue_and_the_vocabularies_parse() -> None:
    assert Catalog.packaged().default.name == "qwen2.5-coder-1.5b"
    vocabularies = Catalog.load(Path(__file__).parents[3] / "support" / "vocabularies.txt")
    starcoder = vocabularies.find("vocab-starcoder")
    assert starcoder.filename == "vocab-starcoder.gguf"
    assert vocabularies.find("vocab-starcoder.out").filename == "vocab-starcoder.out"
