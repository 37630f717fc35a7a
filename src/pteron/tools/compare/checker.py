"""Steps that ran -> results of the report: every output against the value of a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from pteron.errors import PteronError
from pteron.graph import Node, SymInt, Tensor, ValueList
from pteron.ops import Kind
from pteron.ops.operand import HostArray
from pteron.tools import Progress, silent
from pteron.tools.compare.errors import held_type, measure
from pteron.tools.compare.report import NodeResult, Verdict
from pteron.tools.compare.session import StepRecord
from pteron.tools.compare.steps import NoReferenceError
from pteron.tools.compare.tolerances import Tolerances, rounding_of_all

# A step -> the expected outputs by id: arrays and live integers. Raises NoReferenceError if it has none.
Evaluate: TypeAlias = Callable[[StepRecord], Mapping[int, HostArray | int]]


@dataclass(frozen=True, slots=True)
class Departure:
    """A step with an output beyond its tolerance."""

    row: NodeResult
    record: StepRecord
    expected: Mapping[int, HostArray | int]


@dataclass(slots=True)
class StepChecker:
    """Checks steps as they run, and collects the results."""

    evaluate: Evaluate
    tolerances: Tolerances
    progress: Progress = silent
    call: str = ""  # the running call
    rewrite: str = ""  # the rewrite under test
    rows: list[NodeResult] = field(default_factory=list)
    departure: Departure | None = None  # the first

    def observe(self, delegate: int, record: StepRecord, index: int, count: int) -> None:
        self.progress(" ".join(["comparing", self.call]).rstrip() + ", step", index + 1, count)
        for row, expected in self._rows(delegate, record):
            self.rows.append(row)
            if row.verdict is Verdict.DEPARTS and self.departure is None:
                self.departure = Departure(row, record, expected)

    def _rows(
        self, delegate: int, record: StepRecord
    ) -> Iterator[tuple[NodeResult, Mapping[int, HostArray | int]]]:
        step = record.step
        for tensor in record.lost:
            reason = "its memory was overwritten after its node ran"
            yield self._row(delegate, record, tensor, Verdict.DEPARTS, reason=reason), {}
        if not step.is_on_host and (_is_prepack(record) or not record.after):
            yield self._row(delegate, record, None, Verdict.IDLE), {}
            return
        try:
            expected = self.evaluate(record)
        except (NoReferenceError, PteronError) as error:
            yield self._row(delegate, record, None, Verdict.UNCHECKED, reason=str(error)), {}
            return
        for symbol in _symbols(step.nodes) if step.is_on_host else ():
            wanted, found = expected.get(symbol.id), record.integers[symbol.id]
            verdict, reason = Verdict.IDLE if wanted is None else Verdict.WITHIN, ""
            if wanted is not None and wanted != found:
                verdict, reason = Verdict.DEPARTS, f"{found} instead of {wanted}"
            yield self._row(delegate, record, symbol, verdict, reason=reason), expected
        for tensor in record.shown:
            yield self._tensor(delegate, record, tensor, expected), expected

    def _tensor(
        self, delegate: int, record: StepRecord, tensor: Tensor, expected: Mapping[int, HostArray | int]
    ) -> NodeResult:
        if tensor.id not in expected:
            reason = "the reference gives no value for it"
            return self._row(delegate, record, tensor, Verdict.UNCHECKED, reason=reason)
        found, wanted = record.after[tensor.id], np.asarray(expected[tensor.id])
        if not tensor.dtype.is_float:
            wanted = wanted.astype(found.dtype)  # wraps to 32 bits, as on GPUs
        rounding = rounding_of_all(node.name for node in record.step.nodes)
        held = held_type(tensor.dtype, found, wanted)
        errors = measure(found, wanted, held, self.tolerances.bound(rounding, held))
        row = self._row(delegate, record, tensor, Verdict.DEPARTS if errors.departs else Verdict.WITHIN)
        return replace(row, errors=errors, reason=errors.problem or "")

    def _row(
        self,
        delegate: int,
        record: StepRecord,
        value: Tensor | SymInt | None,
        verdict: Verdict,
        reason: str = "",
    ) -> NodeResult:
        nodes = record.step.nodes
        shape = list(record.shapes.get(value.id, value.shape_max)) if isinstance(value, Tensor) else ""
        kind = f"{value.dtype}{shape}" if isinstance(value, Tensor) else "integer"
        return NodeResult(
            self.call,
            delegate,
            tuple(node.index for node in nodes),
            tuple(node.name for node in nodes),
            record.step.ran,
            f"%{value.id} {kind}" if value is not None else "",
            verdict,
            reason=reason,
            rewrite=self.rewrite,
        )


def _is_prepack(record: StepRecord) -> bool:
    """Whether a step only names constants or initial states."""
    return all(call.operator.kind is Kind.PREPACK for call in record.step.calls)


def _symbols(nodes: tuple[Node, ...]) -> Iterator[SymInt]:
    for node in nodes:
        output = node.args[-1]
        for item in output.items if isinstance(output, ValueList) else (output,):
            if isinstance(item, SymInt):
                yield item
