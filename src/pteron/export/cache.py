"""A cache of lowered programs on disk. The key is a hash of what a program was lowered from.

The folder is `compiled` in the cache folder (`pteron.folders`). An entry is one file, KEY-CHECKSUM.pte; the
checksum of its content detects damage. Above BYTES_MAX the least recently used entries are removed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.export.lowering import Options
from pteron.folders import cache_folder, replace_file

if TYPE_CHECKING:
    from torch.export import ExportedProgram

BYTES_MAX = 8_000_000_000
_KEY_DIGITS, _CHECKSUM_DIGITS = 40, 32  # hexadecimal


def programs_folder() -> Path:
    return cache_folder() / "compiled"


def find(key: str) -> Path | None:
    """The entry of a key; removes damaged ones."""
    for path in sorted(programs_folder().glob(f"{key}-*.pte")):
        with contextlib.suppress(OSError):
            if path.stem.removeprefix(f"{key}-") == _checksum_of(path):
                with contextlib.suppress(OSError):  # another user's file
                    # Only the access time: processes that have it open check the modification time.
                    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
                return path
        remove(path)
    return None


def keep(key: str, program: bytes) -> Path | None:
    """Write an entry atomically; None if the folder is not writable."""
    folder = programs_folder()
    path = folder / f"{key}-{hashlib.sha256(program).hexdigest()[:_CHECKSUM_DIGITS]}.pte"
    try:
        replace_file(path, program)
    except OSError:
        return None
    _remove_oldest(folder, path)
    return path


def _checksum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_CHECKSUM_DIGITS]


def _remove_oldest(folder: Path, kept: Path) -> None:
    """Remove least recently used entries until the rest fits; `kept` stays whatever its size."""
    used = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # removed by another process
            state = path.stat()
            used.append((state.st_atime, state.st_size, path))
    total = sum(size for _, size, _ in used)
    for _, size, path in sorted(used):
        if total <= BYTES_MAX:
            break
        if path != kept:
            remove(path)
            total -= size


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # removed by another process, mapped, or in a read-only folder
        path.unlink()


def content_key(exported: ExportedProgram, options: Options, interface: str) -> str:
    """A hash of the graph, all weights, the options, the names and structures of inputs and outputs, and the
    versions of the libraries that lower it."""
    digest = hashlib.sha256()
    for line in _description(exported, options, interface):
        digest.update(line.encode() + b"\n")
    for name, value in sorted({**exported.state_dict, **exported.constants}.items()):
        digest.update(f"{name} ".encode())
        for part in _parts(value):
            digest.update(part)
    return digest.hexdigest()[:_KEY_DIGITS]


@functools.cache
def _own_code() -> str:
    """A hash of Pteron's part of the lowering, and of the planner, which decides what is delegated."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for folder in ("export", "families", "graph", "host", "ops", "passes", "plan", "wgsl"):
        for path in sorted((package / folder).rglob("*.*")):
            if path.suffix in (".py", ".wgsl"):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _description(exported: ExportedProgram, options: Options, interface: str) -> Iterator[str]:
    import torch
    from torch.fx import GraphModule

    yield f"torch {torch.__version__}, executorch {version('executorch')}, torchao {version('torchao')}"
    yield f"pteron {_own_code()}"
    yield str(options)
    yield str(exported.graph_signature)
    yield interface
    yield repr(sorted((str(symbol), str(range)) for symbol, range in exported.range_constraints.items()))
    for name, module in exported.graph_module.named_modules():
        if isinstance(module, GraphModule):  # the program and its branches of control flow
            yield f"graph {name}"
            for node in module.graph.nodes:
                value = _described(node.meta.get("val"))
                yield f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} {value}"


def _described(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.stride()}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_described, value))}]"
    return str(value)


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    """A weight's dtype, shape, strides and bytes; anything else as torch.save writes it."""
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
        yield f"{value.dtype} {tuple(value.shape)} {value.stride()}\n".encode()
        plain = value.detach().resolve_conj().resolve_neg()  # lazy operations have no bytes
        yield memoryview(plain.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return
    saved = io.BytesIO()
    torch.save(value, saved)
    yield saved.getbuffer()
