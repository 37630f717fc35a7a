"""Streams that are full or of another encoding: an exit code and a sentence, never a traceback."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pteron.cli import COMMANDS, main
from pteron.cli.terminal import prepare_streams

# As on a machine whose locale is not UTF-8; Python is not to help by choosing UTF-8 itself.
FOREIGN = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


def pteron(
    *arguments: str, encoding: str | None = None, redirected: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in its own process, with its streams redirected by a shell."""
    environment = {**os.environ, **FOREIGN, **({"PYTHONIOENCODING": encoding} if encoding else {})}
    environment.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-m", "pteron", *arguments]
    if redirected:
        command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *command]
    return subprocess.run(command, capture_output=True, env=environment)


@pytest.mark.parametrize("arguments", [["--help"], ["inspect", "mlp.pte"]], ids=lambda words: words[0])
def test_a_full_disk(arguments: list[str], programs: Path) -> None:
    given = [str(programs / word) if word.endswith(".pte") else word for word in arguments]
    done = pteron(*given, redirected="> /dev/full")
    assert done.returncode == 1
    assert done.stderr == b"pteron: No space left on device\n"


def test_characters_that_an_encoding_lacks(programs: Path) -> None:
    for encoding, sign in (("ascii", r"\u2264"), ("cp437", "≤")):
        done = pteron("inspect", str(programs / "mlp_dynamic.pte"), encoding=encoding)
        assert done.returncode == 0
        assert f"forward(f32[{sign}17, 7])" in done.stdout.decode(encoding)


def test_help_in_a_foreign_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    for command in COMMANDS:
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "cp1252", write_through=True))
        prepare_streams()
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert written.getvalue().startswith(b"usage: pteron")


@pytest.mark.parametrize(
    "arguments", [["run", "x.pte", "--seed", "-1"], ["demo", "--seed", "x"], ["run", "x.pte", "--repeat=-1"]]
)
def test_seeds_and_counts_are_checked(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "expected an integer" in capsys.readouterr().err
