"""wgpu's declarations as tables: they declare the same as its header."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import cffi
import pytest

from pteron.gpu import declarations

HEADER = (files("wgpu") / "resources" / "combined_header.h").read_text("utf-8")
OPENING = "from pteron.gpu.wgpu_native import ffi; print(type(ffi).__name__, ffi.sizeof('WGPULimits'))"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    return tmp_path / "declarations"


def opened() -> list[str]:
    """The kind of FFI that a new process has, and the size of a struct."""
    run = subprocess.run([sys.executable, "-c", OPENING], capture_output=True, text=True, check=True)
    assert not run.stderr
    return run.stdout.split()


@pytest.mark.long
def test_tables_declare_what_the_header_does(cache: Path) -> None:
    parsed = cffi.FFI()
    parsed.cdef(HEADER)
    made = declarations._ffi_class(HEADER, declarations._tables(HEADER))()
    structs = set(re.findall(r"typedef struct (\w+) \{", HEADER))
    assert len(structs) > 50
    for name in structs:
        fields = parsed.typeof(name).fields
        assert made.sizeof(name) == parsed.sizeof(name)
        assert [(key, field.offset) for key, field in made.typeof(name).fields] == [
            (key, field.offset) for key, field in fields
        ]
    with pytest.raises(ImportError, match="another header"):
        made.cdef(HEADER + " ")
    enums = set(re.findall(r"typedef enum (\w+) \{", HEADER))
    assert len(enums) > 50
    for name in enums:
        assert made.typeof(name).elements == parsed.typeof(name).elements


def test_they_are_made_once(cache: Path) -> None:
    first = opened()
    (kept,) = cache.iterdir()
    changed = kept.stat().st_mtime_ns
    assert first == opened()
    assert first[0] == "DeclaredFFI"
    assert kept.stat().st_mtime_ns == changed


def test_other_threads_and_headers_are_not_affected(cache: Path) -> None:
    with declarations.declared():
        with ThreadPoolExecutor(1) as other:
            made = other.submit(cffi.FFI).result()
        made.cdef("struct pair { int first, second; };")
        assert made.sizeof("struct pair") == 2 * made.sizeof("int")
        with pytest.raises(ImportError, match="another header"):
            cffi.FFI().cdef("int second(void);")


def test_a_cache_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "file"))
    assert opened()[0] == "DeclaredFFI"


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a cache that cannot be written to."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PTERON_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    ordinary = cffi.FFI
    with declarations.declared():
        assert cffi.FFI is not ordinary
        assert cffi.FFI().cdef is not None
    assert cffi.FFI is ordinary
