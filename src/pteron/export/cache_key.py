"""An exported program + options -> a key that is equal exactly where the lowered program would be."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.export import lowering
from pteron.export.lowering import Options

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

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
