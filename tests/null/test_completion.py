"""Completion in shells: commands, options and values, otherwise files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pteron.cli import COMMANDS, main
from pteron.cli.completion import words_for


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ([], [*COMMANDS]),
        (["ge"], ["generate"]),
        (["run", "--re"], ["--repeat"]),
        (["run", "model"], []),
        (["run", "--input", ""], []),
        (["export", ""], ["llm"]),
        (["export", "llm", "--quantize", "8d"], ["8da4w"]),
        (["generate", "--model", "s"], ["smollm2", "stories15m"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["export", "llm", "--quantize", "=", "8d"], ["8da4w"]),
        (["export", "llm", "--quantize", "="], words_for(["export", "llm", "--quantize", ""])),
        (["export", "llm", "--quantize=8d"], ["--quantize=8da4w"]),
        (["run", "a=b"], []),
        (["--he"], ["--help"]),
    ],
    ids=" ".join,
)
def test_words(typed: list[str], words: list[str]) -> None:
    assert words_for(typed) == words


def test_every_option_of_a_command_is_offered() -> None:
    assert {"--prompt", "--json", "--overflow", "--help"} <= set(words_for(["generate", "--"]))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_valid(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out, "utf-8")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", str(script)], check=True)


@pytest.fixture
def shell_environment(tmp_path: Path) -> dict[str, str]:
    """An environment where `pteron` is this Python's, and shells do not read the user's settings."""
    command = tmp_path / "bin" / "pteron"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pteron "$@"\n', "utf-8")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "dumb"}


def needed(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def test_bash_completes(shell_environment: dict[str, str]) -> None:
    line = 'eval "$(pteron completion bash)"; COMP_WORDS=(pteron export llm --qu); COMP_CWORD=3; _pteron; '
    done = subprocess.run(
        [needed("bash"), "-c", f'{line} echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        encoding="utf-8",
        env=shell_environment,
        check=True,
    )
    assert done.stdout.split() == ["--quantize"]
