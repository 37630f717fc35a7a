"""This machine -> a report of its adapters and the one that programs use; the report as lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

import pteron
from pteron.errors import DeviceError
from pteron.extras import clone, has_torch, pip_install
from pteron.gpu import adapters
from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.choose import (
    ADAPTER_VARIABLE,
    LIBRARY_VARIABLE,
    choose,
    is_only_software,
    software_sentence,
    with_matrices,
)
from pteron.gpu.encode import NATIVE_VARIABLE, PACKAGED, encoder
from pteron.tools.text import Line, columns, features_text, human_bytes

_FEATURES = ("shader-f16", "subgroup", "timestamp-query")
_LIMITS = {
    "buffer": "max-buffer-size",
    "storage binding": "max-storage-buffer-binding-size",
    "workgroup memory": "max-compute-workgroup-storage-size",
    "invocations": "max-compute-invocations-per-workgroup",
}


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """An adapter: features for kernels, and limits (in bytes, except for invocations)."""

    index: int
    name: str
    kind: str
    backend: str
    driver: str
    features: Mapping[str, bool]
    limits: Mapping[str, int]
    exceptions: tuple[str, ...] = ()  # parts that plans do without, by `pteron doctor --write`


@dataclass(frozen=True, slots=True)
class MachineReport:
    """The adapters of a machine, the chosen one and why, the command encoder, and PyTorch's version."""

    version: str
    wgpu: str
    library: str  # of the chosen adapter, and why
    adapters: tuple[AdapterReport, ...]
    chosen: int
    reason: str
    encoder: str
    torch: str | None
    software: str = ""  # what to expect, where the only adapter is a software adapter
    library_hint: str = ""  # how to get the C library that encodes commands, if it is missing


def examine(adapter: str | None = None) -> MachineReport:
    """This machine, with the adapter that `load(device=adapter)` uses."""
    found = adapters()
    chosen = found.index(choose(adapter, "wgpu"))
    used, problem = found[chosen], ""
    try:
        used = choose(adapter)
    except DeviceError as error:  # the library that PTERON_WEBGPU names cannot be used
        problem = str(error)
    return MachineReport(
        version=pteron.__version__,
        wgpu=metadata.version("wgpu"),
        library=problem or _library(used, found[chosen]),
        adapters=tuple(
            AdapterReport(
                index,
                *(info.name, info.kind, info.backend, info.driver),
                features={feature: feature in info.features for feature in _FEATURES},
                limits={name: info.limits[limit] for name, limit in _LIMITS.items()},
                exceptions=info.exceptions,
            )
            for index, info in enumerate(found)
        ),
        chosen=chosen,
        reason=_reason(adapter, len(found)),
        encoder=encoder(used.library).description,
        torch=metadata.version("torch") if has_torch() else None,
        software=software_sentence(used) if is_only_software(used) else "",
        library_hint="" if PACKAGED.exists() or os.environ.get(NATIVE_VARIABLE) else _library_hint(),
    )


def _library_hint() -> str:
    found = clone()
    if found is None:
        build = "in a clone of Pteron, `scripts/build-native --local FOLDER`"
        return f"{build}, then set {NATIVE_VARIABLE} to the file"
    folder, is_editable = found
    again = "" if is_editable else ", then install again"
    return f"{folder / 'scripts' / 'build-native'} --local{again}; it needs a C compiler"


def _library(used: AdapterInfo, listed: AdapterInfo) -> str:
    """The library of an adapter, its version, and why it is used."""
    name = f"{used.library.name} ({used.library.distribution} {metadata.version(used.library.distribution)})"
    variable = os.environ.get(LIBRARY_VARIABLE) or "auto"
    if variable != "auto":
        matrices = "with matrix cores" if used.target.has_matrices else "without matrix cores"
        return f"{name}, requested by {LIBRARY_VARIABLE}={variable}: {matrices}"
    return f"{name}: {with_matrices(listed)[1]}"


def _reason(adapter: str | None, count: int) -> str:
    if adapter:
        return f"requested as {adapter!r}"
    if variable := os.environ.get(ADAPTER_VARIABLE):
        return f"requested by {ADAPTER_VARIABLE}={variable}"
    return "the only adapter" if count == 1 else "the most capable adapter"


def machine_lines(report: MachineReport) -> Iterator[str]:
    """Every adapter, then how commands and host operators run."""
    yield Line(f"pteron {report.version}, wgpu {report.wgpu}", "note")
    for adapter in report.adapters:
        yield ""
        chosen = f"  (used: {report.reason})" if adapter.index == report.chosen else ""
        yield Line(f"{adapter.index}  {adapter.name}{chosen}", "title")
        yield from columns(_rows(adapter), indent=3)
    yield ""
    if report.software:
        yield from (f"{report.software[:1].upper()}{report.software[1:]}.", "")
    needed = f"others need PyTorch: {pip_install('host')}"
    rest = f"others in PyTorch {report.torch}" if report.torch else needed
    operators = f"common ones in NumPy, {rest}"
    rows = [["WebGPU", report.library], ["commands", f"encoded by {report.encoder}"]]
    if report.library_hint:
        rows.append(["", f"a C library does it faster: {report.library_hint}"])
    yield from columns([*rows, ["host operators", operators]])


def _rows(adapter: AdapterReport) -> list[list[str]]:
    limits = [
        f"{name} {f'{limit:,}' if name == 'invocations' else human_bytes(limit)}"
        for name, limit in adapter.limits.items()
    ]
    without = [["without", f"{', '.join(adapter.exceptions)}: wrong here, by `pteron doctor`"]]
    return [
        ["kind", f"{adapter.kind}, {adapter.backend}"],
        ["driver", adapter.driver],
        ["features", features_text(adapter.features)],
        ["limits", ", ".join(limits)],
        *(without if adapter.exceptions else []),
    ]
