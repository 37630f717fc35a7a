"""This machine -> a report of its adapters, and which of them programs run on by default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

import pteron
from pteron.extras import has_torch
from pteron.gpu import adapters
from pteron.gpu.adapters import ADAPTER_VARIABLE, AdapterInfo, choose
from pteron.gpu.encode import encoder

_FEATURES = ("shader-f16", "subgroup", "timestamp-query")
_LIMITS = {
    "buffer": "max-buffer-size",
    "storage binding": "max-storage-buffer-binding-size",
    "workgroup memory": "max-compute-workgroup-storage-size",
    "invocations": "max-compute-invocations-per-workgroup",
}


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """An adapter: features kernels can use, and limits programs meet (in bytes, but for invocations)."""

    index: int
    name: str
    kind: str
    backend: str
    driver: str
    features: Mapping[str, bool]
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MachineReport:
    """The adapters of a machine, the one that is used and why, what encodes commands, and the PyTorch that
    host operators run on."""

    version: str
    wgpu: str
    adapters: tuple[AdapterReport, ...]
    chosen: int
    reason: str
    encoder: str
    torch: str | None


def examine(adapter: str | None = None) -> MachineReport:
    """This machine, as `load(device=adapter)` sees it."""
    chosen = choose(adapter)
    found = adapters()
    wanted = adapter or os.environ.get(ADAPTER_VARIABLE) or ""
    numbered = wanted.isdigit() and int(wanted) < len(found)
    return MachineReport(
        version=pteron.__version__,
        wgpu=metadata.version("wgpu"),
        adapters=tuple(_report(index, info) for index, info in enumerate(found)),
        chosen=int(wanted) if numbered else found.index(chosen),
        reason=_reason(adapter, len(found)),
        encoder=encoder().description,
        torch=metadata.version("torch") if has_torch() else None,
    )


def _reason(adapter: str | None, count: int) -> str:
    if adapter:
        return f"asked for as {adapter!r}"
    if variable := os.environ.get(ADAPTER_VARIABLE):
        return f"asked for by {ADAPTER_VARIABLE}={variable}"
    return "the only adapter" if count == 1 else "the most capable adapter"


def _report(index: int, info: AdapterInfo) -> AdapterReport:
    return AdapterReport(
        index=index,
        name=info.name,
        kind=info.kind,
        backend=info.backend,
        driver=info.driver,
        features={feature: feature in info.features for feature in _FEATURES},
        limits={name: info.limits[limit] for name, limit in _LIMITS.items()},
    )
