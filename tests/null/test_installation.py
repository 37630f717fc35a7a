"""Hints say how to install an extra, and the C library, for this kind of installation."""

from __future__ import annotations

import json
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
    request.getfixturevalue("installed")
    assert "set PTERON_NATIVE to the file" in machine._library_hint()
