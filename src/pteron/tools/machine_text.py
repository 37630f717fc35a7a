"""The report of a machine as lines."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.tools.machine import AdapterReport, MachineReport
from pteron.tools.text import Line, columns, human_bytes


def machine_lines(report: MachineReport) -> Iterator[str]:
    """Every adapter, and what programs can count on here."""
    yield Line(f"pteron {report.version}, wgpu {report.wgpu}", "note")
    for adapter in report.adapters:
        yield ""
        chosen = f"  (used: {report.reason})" if adapter.index == report.chosen else ""
        yield Line(f"{adapter.index}  {adapter.name}{chosen}", "title")
        yield from columns(_rows(adapter), indent=3)
    yield ""
    rest = (
        f"others by PyTorch {report.torch}"
        if report.torch
        else "others need PyTorch: pip install 'pteron[host]'"
    )
    yield from columns(
        [["commands", f"encoded by {report.encoder}"], ["host operators", f"many by NumPy, {rest}"]]
    )


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
