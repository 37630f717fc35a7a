"""The rates and memory of GPUs, from gpus.csv, and the targets that plans for them have."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.errors import InputError
from pteron.ops import Target
from pteron.system import free_memory

if TYPE_CHECKING:
    from pteron.gpu import Device

_FILE = Path(__file__).with_name("gpus.csv")
_LAUNCH_SECONDS = 3e-6  # where it was not measured
_REACHED = 0.95  # of published rates, by kernels that do nothing else: on an H200, of both
_BUFFER_MAX = 1 << 31
_GPU = Target(is_cpu=False, shader_f16=True, workgroup_bytes_max=32768, binding_bytes_max=_BUFFER_MAX)
TARGETS = {
    "nvidia": Target(
        is_cpu=False,
        shader_f16=True,
        subgroup_size=32,
        invocations_max=1024,
        workgroup_bytes_max=49152,
        binding_bytes_max=_BUFFER_MAX,
    ),
    "apple": Target(
        is_cpu=False,
        shader_f16=True,
        subgroup_size=32,
        packed_dots=False,
        invocations_max=1024,
        workgroup_bytes_max=32768,
        binding_bytes_max=_BUFFER_MAX,
    ),
    "other": _GPU,
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU does in a second, its memory, and the target of its plans."""

    name: str
    target: Target
    memory_bytes: int | None  # None: unknown
    bytes_per_second: float
    operations_per_second: float  # f32; a multiply-add counts as two
    launch_seconds: float
    source: str
    is_measured: bool  # by kernels on the device, not as published
    f16_per_second: float | None = None  # without matrix cores; kernels compute in f32, so times ignore it


@cache
def known_gpus() -> tuple[Gpu, ...]:
    """All GPUs of the table."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        return tuple(map(_gpu, csv.DictReader(file)))


def _gpu(row: dict[str, str]) -> Gpu:
    is_measured = row["measured"] == "yes"
    reached = 1.0 if is_measured else _REACHED
    return Gpu(
        name=row["name"],
        target=TARGETS[row["kind"]],
        memory_bytes=int(float(row["memory_gb"]) * 1e9),
        bytes_per_second=float(row["bandwidth_gb"]) * 1e9 * reached,
        operations_per_second=float(row["f32_tflops"]) * 1e12 * reached,
        launch_seconds=float(row["launch_us"]) * 1e-6 if row["launch_us"] else _LAUNCH_SECONDS,
        source=row["source"],
        is_measured=is_measured,
        f16_per_second=float(row["f16_tflops"]) * 1e12 * reached,
    )


def find_gpus(name: str) -> tuple[Gpu, ...]:
    """The GPUs with `name` in their names; of several, the one with exactly this name if there is one."""
    found = [gpu for gpu in known_gpus() if name.lower() in gpu.name.lower()]
    exact = [gpu for gpu in found if gpu.name.lower().endswith(name.lower())]
    if not found:
        listed = ", ".join(gpu.name for gpu in known_gpus())
        raise InputError(f"no GPU of the table is named {name!r}; there are {listed}")
    return tuple(exact[:1] or found)


def gpu_of_adapter(adapter: str) -> Gpu | None:
    """The GPU of the table that an adapter is, by its name: the longest name that it contains."""
    found = [gpu for gpu in known_gpus() if gpu.name.lower() in adapter.lower()]
    return max(found, key=lambda gpu: len(gpu.name), default=None)


def this_gpu(device: Device | str | None = None) -> Gpu:
    """This machine's adapter with its measured rates. The memory of a GPU is that of the table, the memory of
    a software adapter is the machine's."""
    from pteron.gpu import Device  # here: a table of GPUs needs none
    from pteron.tools.profile.ceilings import ceilings_of, launch_seconds

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
