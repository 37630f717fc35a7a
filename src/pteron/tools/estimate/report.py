"""An estimate of memory and times, and its lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pteron.tools.text import Line, columns, human_bytes, human_time

_MEMORY_USABLE = 0.95  # of a GPU's memory


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """One call of a method: bytes, operations and launches of its plan, and times."""

    what: str
    tokens: int  # that it reads; 0: it is no language model's
    launches: int
    bytes: int  # read and written by all launches
    operations: float
    floor_seconds: float
    likely_seconds: float

    @property
    def tokens_per_second(self) -> float | None:
        """By the likely time."""
        return self.tokens / self.likely_seconds if self.tokens else None


@dataclass(frozen=True, slots=True)
class GpuEstimate:
    """A program on a GPU. Memory is in bytes."""

    gpu: str
    memory: int  # that the program needs
    memory_of_gpu: int | None
    weights: int
    states: int
    calls: tuple[CallEstimate, ...]
    source: str
    is_measured: bool

    @property
    def fits(self) -> bool | None:
        """Whether its memory is enough; None if the GPU's memory is not known."""
        if self.memory_of_gpu is None:
            return None
        return self.memory <= _MEMORY_USABLE * self.memory_of_gpu


@dataclass(frozen=True, slots=True)
class Estimate:
    """A method of a program on several GPUs."""

    program: str
    method: str
    gpus: tuple[GpuEstimate, ...]


def estimate_lines(report: Estimate) -> Iterator[str]:
    """Memory and work once for each kind of plan, then a row for each GPU."""
    yield Line(f"{report.program}, {report.method}: estimated from plans, not measured", "title")
    first = report.gpus[0]
    rows = [
        ["memory", f"{human_bytes(first.memory)}, {human_bytes(first.weights)} of it weights"],
        ["states", f"{human_bytes(first.states)} for each sequence"],
    ]
    rows += [[call.what, _work(call)] for call in first.calls]
    yield from columns(rows, indent=2)
    yield Line(f"  launches and bytes are those of plans for {first.gpu}", "note")
    yield ""
    heading = ["GPU", "fits", *(call.what for call in first.calls), "at least", "rates"]
    lines = [heading, *(_row(each) for each in report.gpus)]
    yield from columns(lines, indent=2, align="<<" + ">" * len(first.calls) + "><")


def _work(call: CallEstimate) -> str:
    arithmetic = f", {call.operations / 1e9:,.1f} GFLOP" if call.operations else ""
    return f"{call.launches} launches, {human_bytes(call.bytes)}{arithmetic}"


def _row(found: GpuEstimate) -> list[str]:
    fits = {None: "unknown", True: "yes", False: "no"}[found.fits]
    floors = " + ".join(human_time(call.floor_seconds) for call in found.calls)
    rates = "measured" if found.is_measured else "published"
    return [found.gpu, fits, *(_time(call) for call in found.calls), floors, rates]


def _time(call: CallEstimate) -> str:
    seconds = human_time(call.likely_seconds)
    return f"{call.tokens_per_second:,.0f} tokens/s" if call.tokens_per_second else seconds
