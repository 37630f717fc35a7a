"""The results of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pteron.tools.compare.errors import Errors


class Verdict(Enum):
    """The verdict on an output."""

    WITHIN = "within"  # within tolerance of its reference
    DEPARTS = "departs"
    UNCHECKED = "unchecked"  # no reference; `reason` says why
    IDLE = "idle"  # no kernel ran: a constant of the file, or a live integer on the host

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class NodeResult:
    """An output of one node, or of several nodes that ran as one."""

    call: str  # "prefill", "decode at 3"; empty if there is only one call
    delegate: int | None  # None: an output of the method
    nodes: tuple[int, ...]
    operators: tuple[str, ...]  # of the nodes
    ran: str  # the operator that ran, possibly made by a rewrite
    output: str  # "%17 f32[1, 5, 64]"
    verdict: Verdict
    errors: Errors | None = None
    reason: str = ""  # why it was not checked, or how it departs
    rewrite: str = ""  # the rewrite or join that made it, if these are compared

    @property
    def where(self) -> str:
        """The nodes for tables: 7, 3-5, 6-15+17."""
        runs: list[list[int]] = []
        for node in self.nodes:
            if runs and node == runs[-1][-1] + 1:
                runs[-1].append(node)
            else:
                runs.append([node])
        return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All results in the order in which nodes ran, and a summary."""

    program: str
    method: str
    adapter: str
    reference: str
    rows: tuple[NodeResult, ...]
    nodes: int  # of the delegates that ran
    checked: int  # nodes with all outputs compared
    idle: int  # nodes that ran no kernel and were not compared
    unchecked: Mapping[str, str]  # "node 3 aten.foo.default": why it was not checked
    host_operators: Mapping[str, int]  # outside the delegates, not checked
    culprit: str | None  # the node that the first departure comes from, in words
    saved: str | None  # the folder of the first departure
    seconds: float

    @property
    def departures(self) -> tuple[NodeResult, ...]:
        return tuple(row for row in self.rows if row.verdict is Verdict.DEPARTS)

    @property
    def first(self) -> NodeResult | None:
        """The first output that departs."""
        return next(iter(self.departures), None)

    @property
    def is_right(self) -> bool:
        """Whether outputs were checked and none departs."""
        verdicts = {row.verdict for row in self.rows}
        return Verdict.DEPARTS not in verdicts and (Verdict.WITHIN in verdicts or not verdicts)
