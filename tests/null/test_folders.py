"""Folders outside the package: files are written whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from pteron.folders import replace_file, replacing


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


def test_a_move_that_fails_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_file(tmp_path / "folder", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
