"""wgpu's C declarations, parsed once and cached on disk.

wgpu parses its C header with pycparser at every import, which takes longer than the rest of Pteron's startup.
cffi also accepts declarations as tables made from the same header, which load at once.
"""

from __future__ import annotations

import ast
import hashlib
import io
import marshal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any

import _cffi_backend
import cffi

from pteron.folders import cache_folder, replace_file


@contextmanager
def declared() -> Iterator[None]:
    """Inside this block, wgpu's FFI reads the cached tables when this thread imports wgpu. Without tables the
    import parses the header as usual. Other threads that use cffi are not affected."""
    ordinary = cffi.FFI
    with suppress(OSError, RuntimeError, ValueError, TypeError, SyntaxError, EOFError):
        header = (files("wgpu") / "resources" / "combined_header.h").read_text("utf-8")
        cffi.FFI = _ffi_class(header, _tables(header))
    try:
        yield
    finally:
        cffi.FFI = ordinary


def _ffi_class(header: str, tables: dict[str, Any]) -> Any:
    """A replacement of cffi's FFI class. Instances made by this thread already have the header's
    declarations."""

    class DeclaredFFI(_cffi_backend.FFI):  # type: ignore[misc]  # cffi has no types
        def cdef(self, text: str) -> None:
            if text != header:
                raise ImportError("wgpu declares another header than its combined_header.h")

        def set_source(self, *_: object) -> None:
            """Nothing is compiled."""

    importer = threading.get_ident()

    class FFI(cffi.FFI):  # type: ignore[misc]
        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            if threading.get_ident() == importer:
                return DeclaredFFI("wgpu", **tables)
            return super().__new__(cls)

    return FFI


def _tables(header: str) -> dict[str, Any]:
    """cffi's tables of a header, from the cache if they are in it."""
    key = hashlib.sha256(f"{cffi.__version__}\n{header}".encode()).hexdigest()[:32]
    cached = cache_folder() / "declarations" / key
    if cached.exists():
        tables: dict[str, Any] = marshal.loads(cached.read_bytes())
        return tables
    tables = _parsed(header)
    with suppress(OSError):  # the cache is read-only
        replace_file(cached, marshal.dumps(tables))
    return tables


def _parsed(header: str) -> dict[str, Any]:
    """The arguments of FFI's constructor, from the Python module that cffi generates for a header."""
    from cffi.recompiler import make_py_source

    parser = cffi.FFI()
    parser.cdef(header)
    module = io.StringIO()
    make_py_source(parser, "wgpu", module)
    (call,) = (node for node in ast.walk(ast.parse(module.getvalue())) if isinstance(node, ast.Call))
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
