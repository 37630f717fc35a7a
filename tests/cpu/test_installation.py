"""Hints say how to install an extra, and the C library, for this kind of installation; scripts/demo says what
a machine lacks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pteron
from pteron import extras
from pteron.extras import pip_install
from pteron.tools import machine

ROOT = Path(pteron.__file__).parents[2]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The metadata of a package that is installed in site-packages."""
    site = tmp_path / "site-packages"
    folder = site / "pteron-9.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pteron\nVersion: 9\n")
    monkeypatch.setattr(extras, "__file__", str(site / "pteron" / "extras.py"))
    monkeypatch.syspath_prepend(str(site))
    return folder


def test_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert pip_install("serve") == 'pip install -e ".[serve]"'
    monkeypatch.chdir(tmp_path)
    assert pip_install("serve") == f'pip install -e "{ROOT}[serve]"'


def test_a_release(installed: Path) -> None:
    assert pip_install("serve") == 'pip install "pteron[serve]"'
    url = {"url": "file:///box/pteron-9-py3-none-any.whl", "archive_info": {}}
    (installed / "direct_url.json").write_text(json.dumps(url))
    assert pip_install("llm") == 'pip install "pteron[llm]"'
    (installed / "direct_url.json").write_text("damaged")
    assert pip_install("llm") == 'pip install "pteron[llm]"'


def test_a_copy_of_a_clone(installed: Path, tmp_path: Path) -> None:
    """`pip install .`; when the clone is gone, the name of the package is left."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    (installed / "direct_url.json").write_text(json.dumps({"url": folder.as_uri(), "dir_info": {}}))
    assert pip_install("serve") == 'pip install "pteron[serve]"'
    (folder / "pyproject.toml").touch()
    assert pip_install("serve") == f'pip install "{folder}[serve]"'


def test_how_to_get_the_c_library(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    monkeypatch.delenv("PTERON_NATIVE", raising=False)
    monkeypatch.setattr(machine, "PACKAGED", tmp_path / "missing.so")
    report = machine.examine()
    assert f"{ROOT / 'scripts' / 'build-native'} --local; it needs a C compiler" in report.library_hint
    assert any("a C library does it faster" in line for line in machine.machine_lines(report))
    (tmp_path / "missing.so").touch()
    report = machine.examine()
    assert not any("a C library does it faster" in line for line in machine.machine_lines(report))
    (tmp_path / "missing.so").unlink()
    with monkeypatch.context() as chosen:
        chosen.setenv("PTERON_NATIVE", "0")
        assert machine.examine().library_hint == ""
    request.getfixturevalue("installed")
    assert "set PTERON_NATIVE to the file" in machine._library_hint()


# scripts/demo on a machine that lacks something --------------------------------------------------


def demo(folder: Path, stubs: dict[str, str]) -> str:
    """What a copy of scripts/demo says at last. `stubs` are commands, beside those that it needs itself."""
    (folder / "scripts").mkdir()
    for name in ("scripts/demo", "scripts/setup.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("bash", "dirname", "cksum", "cat", "rm", "mktemp", "id"):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed")
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / name).symlink_to(found)
    for name, script in stubs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!{shutil.which('bash')}\n{script}\n", "utf-8")
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": str(folder / "bin"), "PYTHON": ""}
    done = subprocess.run(
        [folder / "scripts" / "demo"], capture_output=True, encoding="utf-8", env=environment
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="links and scripts as on Linux and macOS")
@pytest.mark.parametrize(
    ("stubs", "said"),
    [
        ({}, r"Python 3\.11 or newer with its venv module is needed; found: none .*apt install python3-venv"),
        (
            {"bin/python3": '[ "$1" = --version ] && echo Python 3.10.12', "bin/apt-get": "exit 100"},
            r"Python 3\.11 or newer with its venv module is needed; found: Python 3\.10\.12 ",
        ),
        (
            {".venv/bin/python": '[[ "$*" != *install* ]]'},
            "pip could not install Pteron, for the reasons above; it needs a network, or an index",
        ),
        (
            {".venv/bin/python": 'if [[ "$*" == *info* ]]; then echo pteron: no GPU adapter >&2; exit 1; fi'},
            "no GPU adapter",
        ),
    ],
    ids=["no Python", "an old Python and no network", "no network", "no Vulkan driver and no apt"],
)
def test_what_the_demo_lacks(stubs: dict[str, str], said: str, tmp_path: Path) -> None:
    assert re.match(rf"\S*scripts/demo: {said}", demo(tmp_path, stubs))
