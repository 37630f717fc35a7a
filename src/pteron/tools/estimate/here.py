"""This machine's adapter as a GPU of the table: with the rates that are measured on it."""

from __future__ import annotations

from pteron.gpu import Device
from pteron.system import free_memory
from pteron.tools.estimate.gpus import Gpu, gpu_of_adapter
from pteron.tools.profile.ceilings import ceilings_of, launch_seconds


def this_gpu(device: Device | str | None = None) -> Gpu:
    """An adapter with its measured rates. The memory of a GPU is that of the table, the memory of a software
    adapter is the machine's."""
    opened = Device.open(device)
    known, ceilings = gpu_of_adapter(opened.adapter.name), ceilings_of(opened)
    memory = free_memory() if opened.target.is_cpu else known.memory_bytes if known else None
    return Gpu(
        opened.adapter.name,
        opened.target,
        memory,
        ceilings.bytes_per_second,
        ceilings.operations_per_second,
        launch_seconds(opened),
        "measured on this machine",
        is_measured=True,
    )
