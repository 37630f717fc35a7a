"""Both ways of encoding commands, for tests: the C library, compiled here, and Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pteron.gpu.encode import NATIVE_VARIABLE, converters, encoder
from pteron.gpu.wgpu_native import LIBRARY

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C library, built as scripts/build-native builds it for this machine."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler `cc` to build native/encode.c with")
    script = [sys.executable, str(ROOT / "scripts" / "build-native"), "--local"]
    folder = tmp_path_factory.mktemp("native")
    built = subprocess.run([*script, str(folder)], check=True, capture_output=True, text=True)
    return Path(built.stdout.strip())


@pytest.fixture(params=["native", "Python"])
def encoding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Commands are encoded one way, then the other."""
    value = str(request.getfixturevalue("library")) if request.param == "native" else "0"
    encode_by(monkeypatch, value)
    assert encoder(LIBRARY).description.startswith(request.param)
    yield request.param
    encoder.cache_clear()
    converters.cache_clear()


def encode_by(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Let PTERON_NATIVE have a value from now on."""
    monkeypatch.setenv(NATIVE_VARIABLE, value)
    encoder.cache_clear()
    converters.cache_clear()
