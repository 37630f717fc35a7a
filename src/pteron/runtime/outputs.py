"""Views of a plan's outputs -> outputs for the caller, and the copies that fill them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pteron.dtypes import DType
from pteron.gpu import Copy, Device
from pteron.host.tensors import Fetch, GpuTensor, HostResult, View

Output: TypeAlias = GpuTensor | HostResult | int | None
Outputs: TypeAlias = Sequence[View | int]  # views are valid until the next call; live integers as they are


@dataclass(frozen=True, slots=True)
class Wanted:
    """How the caller wants an output: its element type, and whether it stays on the GPU."""

    dtype: DType
    on_gpu: bool


def allocate_outputs(
    device: Device, name: str, views: Outputs, wanted: Sequence[Wanted | None]
) -> tuple[list[Output], list[Copy], int]:
    """The outputs of an executable, the copies that fill them, and the bytes that the host will read.

    Every output is copied, because the next call reuses its memory: to its own buffer if it stays on the
    GPU, otherwise to one staging buffer that all outputs share.
    """
    pairs = list(zip(views, wanted, strict=True))
    fetched = [view.nbytes for view, want in pairs if isinstance(view, View) and want and not want.on_gpu]
    fetch = Fetch(device.readback(sum(map(aligned, fetched))), count=len(fetched)) if fetched else None
    outputs: list[Output] = []
    copies: list[Copy] = []
    offset = 0
    for view, want in pairs:
        if not isinstance(view, View):
            outputs.append(view)
        elif want is None:
            outputs.append(None)
        elif want.on_gpu:
            buffer = device.create_buffer(view.nbytes, f"{name} output")
            kept = GpuTensor(device, buffer, view.shape, want.dtype, view.storage)
            copies.append(Copy(view.buffer, kept.buffer, kept.nbytes))
            outputs.append(kept)
        else:
            assert fetch is not None
            copies.append(Copy(view.buffer, fetch.staging, view.nbytes, offset))
            outputs.append(HostResult(fetch, offset, view.shape, want.dtype, view.storage))
            offset += aligned(view.nbytes)
    return outputs, copies, sum(fetched)


def aligned(size: int) -> int:
    """Bytes of an output in a staging buffer."""
    return -(-size // 16) * 16
