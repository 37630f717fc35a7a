"""What a comparison found, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pteron.tools.compare.errors import Errors


class Verdict(Enum):
    """What is known of an output."""

    WITHIN = "within"  # checked, and as near to its reference as its arithmetic allows
    DEPARTS = "departs"
    UNCHECKED = "unchecked"  # there is nothing to compare with; `reason` says why
    IDLE = "idle"  # no kernel ran: it names a constant of the file, or computes a live integer on the host

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Row:
    """An output of one node, or of several that ran as one."""

    call: str  # "prefill", "decode 2"; nothing where there is one call alone
    delegate: int | None  # None: an output of the method
    nodes: tuple[int, ...]
    operators: tuple[str, ...]  # of the nodes
    ran: str  # the operator that ran: another one where a rewrite made it
    output: str  # "%17 f32[1, 5, 64]"
    verdict: Verdict
    errors: Errors | None = None
    reason: str = ""  # why it was not checked, or what departs
    rewrite: str = ""  # or join, that made it run this way, where these are compared

    @property
    def where(self) -> str:
        """The nodes, as tables show them: 7, 3-5, 6-15+17."""
        runs: list[list[int]] = []
        for node in self.nodes:
            if runs and node == runs[-1][-1] + 1:
                runs[-1].append(node)
            else:
                runs.append([node])
        return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows in the order in which nodes ran, and what they come to."""

    program: str
    method: str
    adapter: str
    reference: str
    rows: tuple[Row, ...]
    nodes: int  # of the delegates that ran
    checked: int  # of those, how many had all their outputs compared
    idle: int  # of those, how many ran no kernel, and were not compared with anything
    unchecked: Mapping[str, str]  # "node 3 aten.foo.default": why nothing is known of it
    host_operators: Mapping[str, int]  # that ran outside the delegates, unchecked
    culprit: str | None  # what the first departure comes from, as far as it could be told
    saved: str | None  # the folder with the first departure's inputs
    seconds: float

    @property
    def departures(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict is Verdict.DEPARTS)

    @property
    def first(self) -> Row | None:
        """The first output that departs."""
        return next(iter(self.departures), None)

    @property
    def is_right(self) -> bool:
        """Whether nothing departs, of all that there was something to compare with."""
        verdicts = {row.verdict for row in self.rows}
        return Verdict.DEPARTS not in verdicts and (Verdict.WITHIN in verdicts or not verdicts)
