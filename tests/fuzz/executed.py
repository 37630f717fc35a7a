"""Runs each graph several times on a device: the results must not depend on memory outside its inputs.

    twice           with memory full of NaNs, and with memory full of another pattern: the same bits
    checked         with kernels whose every access is clamped to its buffer: the same numbers
    measured        with kernels that note how far they reach and how often they loop: no more than they state

Kernels run as in real programs: without bounds checks if they declare their extents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, TypeAlias

import numpy as np

from fuzz.target import Wrong, wrong_device
from pteron import Device
from pteron.errors import DeviceError, InputError
from pteron.graph.values import tensors
from pteron.host.tensors import HostResult
from pteron.ops import Target
from pteron.ops.operand import Slot
from pteron.passes import Prepared
from pteron.plan import Compiled, Plan, Shapes, TensorPort
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Counters, Session

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Inputs: TypeAlias = list[Array | int]
BYTES_MAX = 1 << 24  # of a graph's buffers: larger ones are planned, not run
_NANS, _PATTERN = b"\xff", b"\x3b"


@cache
def the_device() -> Device:
    return Device.open()


def is_small(compiled: Compiled) -> bool:
    states = sum(state.bytes for state in compiled.executable.states.values())
    at_most = compiled.plan_at_maximum()
    scratch = sum(at_most[0].scratch_bytes) if at_most else 0
    return sum(compiled.executable.slots) + states + scratch <= BYTES_MAX


def draw_inputs(prepared: Prepared, shapes: Shapes, values: Mapping[int, int], random: Random) -> Inputs:
    """Inputs of these shapes that bring these live integers."""
    generator = np.random.default_rng(random.getrandbits(32))
    inputs: Inputs = []
    for value, shape in zip(prepared.graph.inputs, shapes, strict=True):
        if shape is None:
            inputs.append(values[value.id])
            continue
        dtype = value.dtype.numpy  # type: ignore[union-attr]  # a shape is a tensor's
        kind = dtype.kind
        inputs.append(
            generator.standard_normal(shape).astype(dtype)
            if kind == "f"
            else generator.integers(0, 2 if kind == "b" else 3, shape).astype(dtype)
        )
    for source in prepared.sources:
        array = None if source.input is None else inputs[source.input]
        if isinstance(array, np.ndarray) and array.size and source.dim is not None:
            place = [slice(None)] * array.ndim
            place[source.dim] = slice(source.index, source.index + 1 or None)
            # As the type has it: a u8 holds no -1.
            array[tuple(place)] = np.asarray(values[source.symbol]).astype(array.dtype)
    return inputs


def execute(prepared: Prepared, target: Target, calls: Sequence[Inputs], *, measured: bool) -> str:
    """Run the calls in every way; the outcome in a word."""
    first = _results(prepared, target, calls, _NANS)
    second = _results(prepared, target, calls, _PATTERN)
    _compare("twice", prepared, first, second, lambda a, b: a.tobytes() == b.tobytes())
    with _checked():
        clamped = _results(prepared, target, calls, _NANS)
    _compare("checked", prepared, first, clamped, _alike)
    if measured:
        import pytest
        from measure import Measuring

        with pytest.MonkeyPatch.context() as patch:
            Measuring().start(patch)
            _compare("measured", prepared, first, _results(prepared, target, calls, _NANS), _alike)
    ran = sum(not isinstance(outcome, str) for outcome in first)
    return "ran" if ran else "refused every call"


def _results(
    prepared: Prepared, target: Target, calls: Sequence[Inputs], pattern: bytes
) -> list[list[Array] | str]:
    """The outputs of each call, or the error that the call ended in."""
    device = the_device()
    compiled = Compiled(prepared, target)
    session = Session(compiled.executable, device, Counters(), compiled)
    try:
        states = session.states()
        ports = compiled.executable.outputs
        wanted = [
            Wanted(port.dtype, on_gpu=False) if isinstance(port, TensorPort) else None for port in ports
        ]
        found: list[list[Array] | str] = []
        for inputs in calls:
            _poison(session, compiled, pattern)
            try:
                outputs = session.run(inputs, wanted, states)
            except InputError as error:  # what the graph does not take at these shapes, integers or indices
                found.append(type(error).__name__)
                continue
            found.append([np.asarray(o.numpy() if isinstance(o, HostResult) else o) for o in outputs])
        states.close()
        return found
    except DeviceError as error:
        if "needs a buffer of" in str(error):
            return ["too large"] * len(calls)
        raise wrong_device(error) from error
    finally:
        session.close()


def _poison(session: Session, compiled: Compiled, pattern: bytes) -> None:
    """Fill whatever a call may use with a pattern: all but what calls at load left there."""
    buffers = compiled.placement.buffers
    kept = {buffers[tensor.id] for call in compiled.prepared.once for tensor in call.writes}
    arena = session._arena
    for index in range(len(compiled.executable.slots)):
        if Slot(index) not in kept:
            buffer = arena[Slot(index)]
            session.device.write(buffer, pattern * buffer.size)
    for buffer in arena._scratch:
        session.device.write(buffer, pattern * buffer.size)


@contextmanager
def _checked() -> Iterator[None]:
    """Plans whose kernels are all compiled with bounds checks."""
    plan, at_maximum = Compiled.plan, Compiled.plan_at_maximum

    def with_checks(made: Plan) -> Plan:
        launches = (
            launch._replace(module=replace(launch.module, bounds_checks=True)) for launch in made.launches
        )
        return replace(made, launches=tuple(launches))

    def checked_plan(compiled: Compiled, shapes: Shapes, values: Mapping[int, int]) -> Plan:
        return with_checks(plan(compiled, shapes, values))

    def checked_at_maximum(compiled: Compiled) -> tuple[Plan, dict[int, int]] | None:
        made = at_maximum(compiled)
        return (with_checks(made[0]), made[1]) if made else None

    Compiled.plan, Compiled.plan_at_maximum = checked_plan, checked_at_maximum  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Compiled.plan, Compiled.plan_at_maximum = plan, at_maximum  # type: ignore[method-assign]


def _maker(prepared: Prepared, output: int) -> str:
    """The operator that makes an output of the graph."""
    value = prepared.graph.outputs[output]
    made = [node.name for node in prepared.graph.nodes if value in (node.args[-1], *tensors(node.args[-1]))]
    return made[-1] if made else "an input"


def _compare(
    how: str,
    prepared: Prepared,
    first: Sequence[list[Array] | str],
    second: Sequence[list[Array] | str],
    is_same: Callable[[Array, Array], bool],
) -> None:
    for call, (one, two) in enumerate(zip(first, second, strict=True)):
        if isinstance(one, str) or isinstance(two, str):
            if one != two:
                raise Wrong(f"{how}: errors", f"call {call} ends in {one}, {how} in {two}")
            continue
        for number, (a, b) in enumerate(zip(one, two, strict=True)):
            if not is_same(a, b):
                where, some = f"{how}: {_maker(prepared, number)}", (a.ravel()[:8], b.ravel()[:8])
                raise Wrong(where, f"output {number} of call {call} differs: {some[0]} and {some[1]}")


def _alike(a: Array, b: Array) -> bool:
    """Equal, but for what another compilation of the same arithmetic may round otherwise."""
    if a.shape != b.shape:
        return False
    if a.tobytes() == b.tobytes():
        return True
    x, y = a.astype(np.float64), b.astype(np.float64)
    if a.dtype.kind != "f":  # rounding decides where floats become integers, here and there
        return int((x != y).sum()) <= max(2, x.size // 10)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return True  # WGSL leaves open what becomes of NaNs and infinities
    return bool(np.abs(x - y).max(initial=0) <= 1e-2 * np.abs(x).max(initial=1e-30))
