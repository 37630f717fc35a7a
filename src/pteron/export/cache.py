"""Lowered programs on disk, found by what they were made from.

The folder is `compiled` in the one for all caches (`pteron.folders`). An entry is one file,
KEY-CHECKSUM.pte: the key says what it was made from, the checksum what it must contain, so a damaged entry is
noticed and made anew. Beyond BYTES_MAX those go that were not used for longest.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.export import lowering
from pteron.export.lowering import Options
from pteron.folders import cache_folder

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


BYTES_MAX = 8_000_000_000
_DIGITS = 32  # of a checksum, in an entry's name


def programs_folder() -> Path:
    """Where lowered programs are kept."""
    return cache_folder() / "compiled"


def find(key: str) -> Path | None:
    """The undamaged entry of a key; damaged ones are removed."""
    for path in sorted(programs_folder().glob(f"{key}-*.pte")):
        with contextlib.suppress(OSError):
            if path.stem.removeprefix(f"{key}-") == _checksum_of(path):
                with contextlib.suppress(OSError):  # a file of another user's
                    # Used now, and not changed: whoever has it open looks at the time of its last change.
                    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
                return path
        remove(path)
    return None


def keep(key: str, program: bytes) -> Path | None:
    """Write an entry, whole or not at all; None where the folder cannot be written to."""
    folder = programs_folder()
    path = folder / f"{key}-{hashlib.sha256(program).hexdigest()[:_DIGITS]}.pte"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as file:
            try:
                file.write(program)
                file.close()
                Path(file.name).replace(path)
            except BaseException:
                file.close()
                remove(Path(file.name))
                raise
    except OSError:
        return None
    _forget_oldest(folder, path)
    return path


def _checksum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]


def _forget_oldest(folder: Path, kept: Path) -> None:
    """Remove entries until the rest fits; the one just written stays whatever its size."""
    used = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process may have removed it
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
    """Remove an entry, if that can be done."""
    with contextlib.suppress(OSError):  # gone already, mapped, or in a read-only folder
        path.unlink()


_DIGITS = 40


def content_key(exported: ExportedProgram, options: Options) -> str:
    """The graph, every weight, the options, and the versions of all that turns them into a program."""
    digest = hashlib.sha256()
    for line in _description(exported, options):
        digest.update(line.encode() + b"\n")
    for name, value in sorted({**exported.state_dict, **exported.constants}.items()):
        digest.update(f"{name} ".encode())
        for part in _parts(value):
            digest.update(part)
    return digest.hexdigest()[:_DIGITS]


def _description(exported: ExportedProgram, options: Options) -> Iterator[str]:
    import torch
    from torch.fx import GraphModule

    yield f"torch {torch.__version__}, executorch {version('executorch')}, torchao {version('torchao')}"
    yield Path(lowering.__file__).read_text("utf-8")  # this side of the lowering
    yield repr(options)
    yield str(exported.graph_signature)
    yield repr(sorted((str(symbol), str(range)) for symbol, range in exported.range_constraints.items()))
    for name, module in exported.graph_module.named_modules():
        if isinstance(module, GraphModule):  # the program itself, and the branches of control flow
            yield f"graph {name}"
            for node in module.graph.nodes:
                value = _described(node.meta.get("val"))
                yield f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} {value}"


def _described(value: Any) -> str:
    """What the exporter knows of a value."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.stride()}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_described, value))}]"
    return str(value)


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    """A weight's type, shape and bytes; of anything else what PyTorch would save."""
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
        yield f"{value.dtype} {tuple(value.shape)} {value.stride()}\n".encode()
        yield memoryview(_bytes_of(value).numpy())
        return
    saved = io.BytesIO()
    torch.save(value, saved)
    yield saved.getbuffer()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as one row of bytes."""
    import torch

    row = tensor.detach().cpu().contiguous().reshape(-1)
    return row.view(torch.uint8)
