from __future__ import annotations

from pathlib import Path

import pytest

from support.package_index import write_sdist, write_wheel
from suture.server.models.archives import MemberMissing, extract
from suture.server.models.source import SourceError


def test_members_come_out_of_a_wheel_by_their_path(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "tiny", "1.0", {"tiny/a.bin": b"a" * 5000, "tiny/b.bin": b"b"})
    extract(wheel, {"tiny/a.bin": tmp_path / "a", "tiny/b.bin": tmp_path / "b"})
    assert (tmp_path / "a").read_bytes() == b"a" * 5000
    assert (tmp_path / "b").read_bytes() == b"b"


def test_members_come_out_of_an_sdist_by_their_path_below_its_top_folder(tmp_path: Path) -> None:
    sdist = write_sdist(tmp_path, "tiny", "1.0", {"vendor/a.gguf": b"gguf"})
    extract(sdist, {"vendor/a.gguf": tmp_path / "a"})
    assert (tmp_path / "a").read_bytes() == b"gguf"


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "tiny", "1.0", {"tiny/a.bin": b"a"})
    with pytest.raises(MemberMissing, match=r"tiny-1\.0-py3-none-any\.whl has no tiny/c\.bin"):
        extract(wheel, {"tiny/c.bin": tmp_path / "c"})


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_cut_archive_is_broken_and_leaves_no_member(tmp_path: Path, kind: str) -> None:
    write = write_wheel if kind == "wheel" else write_sdist
    archive = write(tmp_path, "tiny", "1.0", {"tiny/a.bin": bytes(range(256)) * 500})
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(SourceError, match="is broken"):
        extract(archive, {"tiny/a.bin": tmp_path / "a"})
    assert not (tmp_path / "a").exists()


def test_a_wheel_with_a_flipped_byte_is_broken(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "tiny", "1.0", {"tiny/a.bin": bytes(range(256)) * 50})
    content = bytearray(wheel.read_bytes())
    content[100] ^= 0xFF
    wheel.write_bytes(content)
    with pytest.raises(SourceError, match="is broken"):
        extract(wheel, {"tiny/a.bin": tmp_path / "a"})
