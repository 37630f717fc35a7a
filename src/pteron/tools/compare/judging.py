"""Steps that have run -> rows of the report: every output beside what a reference gives for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from pteron.errors import PteronError
from pteron.graph import Node, SymInt, Tensor, ValueList
from pteron.ops import Kind
from pteron.ops.operand import HostArray
from pteron.tools.compare.errors import held_type, measure
from pteron.tools.compare.report import Row, Verdict
from pteron.tools.compare.stepping import Seen
from pteron.tools.compare.steps import NoReferenceError
from pteron.tools.compare.tolerances import Tolerances, work_of_all
from pteron.tools.progress import Progress, silent

# What a step's outputs should be, by id: arrays, and live integers. A NoReferenceError where it cannot tell.
Expect: TypeAlias = Callable[[Seen], Mapping[int, HostArray | int]]


@dataclass(frozen=True, slots=True)
class Departure:
    """A step whose outputs are not what they should be: all that a report of it needs."""

    row: Row
    seen: Seen
    expected: Mapping[int, HostArray | int]


@dataclass(slots=True)
class Judge:
    """Looks at steps as they run, and keeps what it found."""

    expect: Expect
    tolerances: Tolerances
    progress: Progress = silent
    call: str = ""  # that runs now
    rewrite: str = ""  # that is looked at
    rows: list[Row] = field(default_factory=list)
    departure: Departure | None = None  # the first

    def watch(self, delegate: int, seen: Seen, index: int, count: int) -> None:
        """Judge one step."""
        self.progress(" ".join(["comparing", self.call]).rstrip() + ", step", index + 1, count)
        for row, expected in self._rows(delegate, seen):
            self.rows.append(row)
            if row.verdict is Verdict.DEPARTS and self.departure is None:
                self.departure = Departure(row, seen, expected)

    def _rows(self, delegate: int, seen: Seen) -> Iterator[tuple[Row, Mapping[int, HostArray | int]]]:
        step = seen.step
        for tensor in seen.lost:
            reason = "something wrote over it since the node that makes it ran"
            yield self._row(delegate, seen, tensor, Verdict.DEPARTS, reason=reason), {}
        if not step.is_on_host and (_is_prepack(seen) or not seen.after):
            yield self._row(delegate, seen, None, Verdict.IDLE), {}
            return
        try:
            expected = self.expect(seen)
        except (NoReferenceError, PteronError) as error:
            yield self._row(delegate, seen, None, Verdict.UNCHECKED, reason=str(error)), {}
            return
        for symbol in _symbols(step.nodes) if step.is_on_host else ():
            wanted, found = expected.get(symbol.id), seen.integers[symbol.id]
            verdict, reason = Verdict.IDLE if wanted is None else Verdict.WITHIN, ""
            if wanted is not None and wanted != found:
                verdict, reason = Verdict.DEPARTS, f"{found} instead of {wanted}"
            yield self._row(delegate, seen, symbol, verdict, reason=reason), expected
        for tensor in seen.shown:
            yield self._tensor(delegate, seen, tensor, expected), expected

    def _tensor(
        self, delegate: int, seen: Seen, tensor: Tensor, expected: Mapping[int, HostArray | int]
    ) -> Row:
        if tensor.id not in expected:
            reason = "the reference gives no value for it"
            return self._row(delegate, seen, tensor, Verdict.UNCHECKED, reason=reason)
        found, wanted = seen.after[tensor.id], np.asarray(expected[tensor.id])
        if not tensor.dtype.is_float:
            wanted = wanted.astype(found.dtype)  # integers leave off what 32 bits do not hold, as GPUs do
        work = work_of_all(node.name for node in seen.step.nodes)
        held = held_type(tensor.dtype, found, wanted)
        errors = measure(found, wanted, held, self.tolerances.bound(work, held))
        row = self._row(delegate, seen, tensor, Verdict.DEPARTS if errors.departs else Verdict.WITHIN)
        return replace(row, errors=errors, reason=errors.problem or "")

    def _row(
        self,
        delegate: int,
        seen: Seen,
        value: Tensor | SymInt | None,
        verdict: Verdict,
        reason: str = "",
    ) -> Row:
        nodes = seen.step.nodes
        shape = list(seen.shapes.get(value.id, value.shape_max)) if isinstance(value, Tensor) else ""
        kind = f"{value.dtype}{shape}" if isinstance(value, Tensor) else "integer"
        return Row(
            self.call,
            delegate,
            tuple(node.index for node in nodes),
            tuple(node.name for node in nodes),
            seen.step.ran,
            f"%{value.id} {kind}" if value is not None else "",
            verdict,
            reason=reason,
            rewrite=self.rewrite,
        )


def _is_prepack(seen: Seen) -> bool:
    """Whether a step only names constants, or what states began with."""
    return all(call.operator.kind is Kind.PREPACK for call in seen.step.calls)


def _symbols(nodes: tuple[Node, ...]) -> Iterator[SymInt]:
    for node in nodes:
        output = node.args[-1]
        for item in output.items if isinstance(output, ValueList) else (output,):
            if isinstance(item, SymInt):
                yield item
