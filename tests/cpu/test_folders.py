"""Folders outside the package: files are written whole or not at all, and the cache is not needed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from pteron.cli import main
from pteron.errors import PteronError
from pteron.folders import cache_folder, new_folder, replace_file, replacing, writing_to


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user: no HOME, and the system does not know the user's number."""

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for variable in ("HOME", "PTERON_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pytest.importorskip("pwd"), "getpwuid", unknown)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_an_error_leaves_the_old_file_and_no_part(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    replace_file(path, b"old")
    with suppress(type(error)), replacing(path) as file:
        file.write(b"part")
        assert len(files(path.parent)) == 2
        raise error
    assert files(path.parent) == {"file": b"old"}
    replace_file(path, b"new")
    assert files(path.parent) == {"file": b"new"}


def test_a_folder_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    """One that another process has finished stays; one that lacks its marker is replaced."""

    def make(content: bytes, error: BaseException | None = None) -> None:
        with suppress(KeyboardInterrupt), new_folder(tmp_path / "in" / "made", "marker") as folder:
            folder.mkdir()
            (folder / "marker").write_bytes(content)
            if error:
                raise error

    make(b"interrupted", KeyboardInterrupt())
    assert not list((tmp_path / "in").iterdir())
    for content in (b"first", b"second"):
        make(content)
        assert files(tmp_path / "in" / "made") == {"marker": b"first"}
    (tmp_path / "in" / "made" / "marker").rename(tmp_path / "in" / "made" / "part")
    make(b"third")
    assert files(tmp_path / "in" / "made") == {"marker": b"third"}
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["made"]


def test_a_move_that_fails_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_file(tmp_path / "folder", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_messages_name_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    for folder, hint in ((tmp_path / "programs", "; PTERON_CACHE names another folder"), (Path("out"), "")):
        with pytest.raises(PteronError) as failed, writing_to(folder):
            raise OSError(28, "No space left on device")
        said = f"{folder} cannot be written to: [Errno 28] No space left on device{hint}"
        assert str(failed.value).startswith(said)


@pytest.mark.usefixtures("homeless")
def test_without_a_home(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cache_folder()
    assert not folder.exists()
    assert not list(folder.glob("*"))
    for command in (["list"], ["inspect", str(programs / "mlp.pte")], ["completion", "--words", "chat", "s"]):
        assert main(command) == 0
    assert "stories15m" in capsys.readouterr().out
    assert main(["pull", "smollm2"]) == 1
    said = "pteron: there is no home folder for the cache: set PTERON_CACHE to a folder"
    assert said in capsys.readouterr().err
    assert not os.path.exists("~")
