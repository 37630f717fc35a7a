"""A recorded case, run through Pteron -> its result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np

import pteron
from conformance.record import Array, Call, Case, Result
from pteron.format.delegate import read_delegate
from pteron.format.program import read_program
from pteron.format.records import KernelCall, MethodRecord, TensorRecord
from pteron.graph import Tensor, ValueList, build


def run_case(case: Case, adapter: str | None) -> Result:
    """Load the case's program, make its calls in order on one method, and compare every answer."""
    if case.outcome is not None:
        return Result(case.name, case.outcome, case.cause)
    if not case.calls:
        raise ValueError(f"{case.name} has no calls")
    start = time.perf_counter()
    outcome, cause, difference = "pass", "", 0.0
    file = read_program(case.program)
    (record,) = (record for record in file.methods if record.name == "forward")
    try:
        with pteron.load(case.program, device=adapter) as program:
            for call in case.calls:
                outputs = program["forward"](*call.inputs)
                difference = max([difference, *_differences(call, outputs)])
    except pteron.PteronError as error:
        outcome, cause = "refused", " ".join(str(error).split())
    except WrongAnswerError as error:
        outcome, cause, difference = "wrong", str(error), error.difference
    return Result(
        case.name,
        outcome,
        cause,
        difference,
        shapes=len({str([array.shape for array in call.inputs]) for call in case.calls}),
        is_dynamic=_is_dynamic(record),
        seconds=time.perf_counter() - start,
        operators=_operators(record, file.named_data),
        host=sorted({record.operators[c.operator] for c in record.instructions if isinstance(c, KernelCall)}),
    )


def _is_dynamic(record: MethodRecord) -> bool:
    inputs = [record.values[id] for id in record.inputs]
    return any(value.dynamism != "static" for value in inputs if isinstance(value, TensorRecord))


class WrongAnswerError(Exception):
    """An output that is not what was expected."""

    def __init__(self, message: str, difference: float = float("inf")) -> None:
        super().__init__(message)
        self.difference = difference


def _differences(call: Call, outputs: tuple[object, ...]) -> Iterator[float]:
    """The largest difference of each output; what a call has no expectation for is not looked at."""
    if len(outputs) < len(call.expected):
        raise WrongAnswerError(f"{len(outputs)} outputs instead of {len(call.expected)}")
    for place, (expected, output) in enumerate(zip(call.expected, outputs, strict=False)):
        found = np.asarray(output)
        where = f"output {place} at inputs {[list(array.shape) for array in call.inputs]}"
        if found.shape != expected.shape:
            raise WrongAnswerError(f"{where} has the shape {list(found.shape)}, not {list(expected.shape)}")
        if found.dtype.kind != expected.dtype.kind:
            raise WrongAnswerError(f"{where} has the type {found.dtype}, not {expected.dtype}")
        yield _difference(found, expected, call, where)


def _difference(found: Array, expected: Array, call: Call, where: str) -> float:
    exact = expected.dtype.kind != "f"
    a, b = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    apart = np.nan_to_num(apart, nan=np.inf, posinf=np.inf)
    largest = float(apart.max(initial=0.0))
    size = np.where(np.isfinite(b), np.abs(b), 0.0)  # what is infinite or no number has no neighbours
    allowed = 0.0 if exact else call.absolute + call.relative * size
    if not (apart <= allowed).all():
        count = int((apart > allowed).sum())
        raise WrongAnswerError(
            f"{where}: {count} of {apart.size} elements off, by {largest:.3g} at most", largest
        )
    return largest


def _operators(record: MethodRecord, data: Mapping[str, memoryview]) -> dict[str, list[str]]:
    """Each operator in the delegates, with the element types of the first tensors that it is given."""
    found: dict[str, set[str]] = {}
    for place, delegate in enumerate(record.delegates):
        graph = build(read_delegate(delegate.blob, f"delegate {place}", data.get))
        for node in graph.nodes:
            members = (
                item for arg in node.args for item in (arg.items if isinstance(arg, ValueList) else (arg,))
            )
            first = next((item for item in members if isinstance(item, Tensor)), None)
            found.setdefault(node.name, set()).update([str(first.dtype)] if first is not None else [])
    return {name: sorted(dtypes) for name, dtypes in sorted(found.items())}
