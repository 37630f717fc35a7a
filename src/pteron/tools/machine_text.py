"""The report of a machine as lines."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.tools.machine import AdapterReport, MachineReport
from pteron.tools.text import columns, human_bytes


def machine_lines(report: MachineReport) -> Iterator[str]:
    """Every adapter, and what programs can count on here."""
    yield f"pteron {report.version}, wgpu {report.wgpu}"
    for adapter in report.adapters:
        yield ""
        chosen = f"  (used: {report.reason})" if adapter.index == report.chosen else ""
        yield f"{adapter.index}  {adapter.name}{chosen}"
        yield from columns(_rows(adapter), indent=3)
    yield ""
    yield f"commands are encoded by: {report.encoder}"
    torch = f"PyTorch {report.torch}" if report.torch else "no PyTorch: pip install 'pteron[host]'"
    yield f"operators outside the delegates: {torch}"


def _rows(adapter: AdapterReport) -> list[list[str]]:
    limits = [
        f"{name} {f'{limit:,}' if name == 'invocations' else human_bytes(limit)}"
        for name, limit in adapter.limits.items()
    ]
    return [
        ["kind", f"{adapter.kind}, {adapter.backend}"],
        ["driver", adapter.driver],
        ["features", ", ".join(f"{'' if has else 'no '}{name}" for name, has in adapter.features.items())],
        ["limits", ", ".join(limits)],
    ]
