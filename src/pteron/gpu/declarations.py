"""wgpu's C declarations, parsed once and kept on disk.

wgpu parses its header with pycparser whenever it is imported, which takes longer than all else that starting
Pteron does. cffi can also take declarations as tables, made from the same header: loading them takes no time.
"""

from __future__ import annotations

import ast
import hashlib
import io
import marshal
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any

import _cffi_backend
import cffi

from pteron.folders import cache_folder

_DIGEST = hashlib.sha256().digest_size


@contextmanager
def declared() -> Iterator[None]:
    """Within it, importing wgpu takes its declarations as tables; where there are none, as it always does."""
    ordinary = cffi.FFI
    with suppress(OSError, RuntimeError, ValueError, TypeError, SyntaxError, EOFError):
        header = (files("wgpu") / "resources" / "combined_header.h").read_text("utf-8")
        cffi.FFI = _factory(header, _tables(header))
    try:
        yield
    finally:
        cffi.FFI = ordinary


def _factory(header: str, tables: dict[str, Any]) -> Any:
    class Declared(_cffi_backend.FFI):  # type: ignore[misc]  # cffi has no types
        """An FFI that already has the declarations it will be given."""

        def cdef(self, text: str) -> None:
            if text != header:
                raise ImportError("wgpu declares another header than the one beside it")

        def set_source(self, *_: object) -> None:
            """Nothing is compiled."""

    return lambda: Declared("wgpu", **tables)


def _tables(header: str) -> dict[str, Any]:
    """What cffi makes of a header, from the cache where it is there."""
    key = hashlib.sha256(f"{cffi.__version__}\n{header}".encode()).hexdigest()[:32]
    kept = cache_folder() / "declarations" / key
    if kept.exists():
        content = kept.read_bytes()
        digest, packed = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(packed).digest() == digest:  # damaged tables would end the process
            tables: dict[str, Any] = marshal.loads(packed)
            return tables
    tables = _parsed(header)
    import tempfile  # and much with it, for this alone

    with suppress(OSError):  # a cache that cannot be written to
        kept.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=kept.parent)
        with open(handle, "wb") as file:
            packed = marshal.dumps(tables)
            file.write(hashlib.sha256(packed).digest() + packed)
        os.replace(unfinished, kept)
    return tables


def _parsed(header: str) -> dict[str, Any]:
    """The arguments of the call that makes an FFI, from the module that cffi writes for it."""
    from cffi.recompiler import make_py_source

    parser = cffi.FFI()
    parser.cdef(header)
    module = io.StringIO()
    make_py_source(parser, "wgpu", module)
    (call,) = (node for node in ast.walk(ast.parse(module.getvalue())) if isinstance(node, ast.Call))
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
