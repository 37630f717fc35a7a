"""Live integers at a delegate's border: into tensors that cannot hold them, out of tensors that hold none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from sketch import Sketch

from pteron import Device, DType, GraphError, HostError
from pteron.format.records import DelegateCall, EValue, Instruction, MethodRecord, MoveCall, TensorRecord
from pteron.passes import prepare
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.method import Method


def one(dtype: DType) -> TensorRecord:
    return TensorRecord(dtype, (1,), (0,), "static", None, False, False, None, False)


def shifted(
    device: Device, values: Sequence[EValue], instructions: Sequence[Instruction], times: int = 1
) -> Method:
    """A method of one input, %0, and one output, the last value: a delegate shifts it by 20 bits, often."""
    sketch = Sketch()
    first = last = sketch.symbol()
    for _ in range(times):
        product = sketch.symbol()
        sketch.node("mul", last, 1 << 20, product)
        last = product
    output = len(values) - 1
    record = MethodRecord("forward", tuple(values), (0,), (output,), tuple(instructions), (), (), (0, 64))
    return Method(LoadedMethod("written.pte", record, [prepare(sketch.graph([first], [last]))], [], device))


@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.I16, DType.I32])
def test_a_tensor_too_narrow_for_a_live_integer(device: Device, dtype: DType) -> None:
    method = shifted(device, [None, one(dtype)], [DelegateCall(0, (0, 1))])
    np.testing.assert_array_equal(method(0)[0], np.zeros(1, dtype.numpy))
    for wrong in (1 << 11, -(1 << 12)):
        with pytest.raises(GraphError, match=r"written.pte, method forward, instruction 0: .*out of bounds"):
            method(wrong)
    np.testing.assert_array_equal(method(0)[0], np.zeros(1, dtype.numpy))  # and it goes on


def test_a_live_integer_beyond_all_types(device: Device) -> None:
    """Every factor fits, and their sum does; the value does not."""
    method = shifted(device, [None, None], [DelegateCall(0, (0, 1))], times=3)
    assert method(3) == (3 << 60,)
    with pytest.raises(HostError, match="an integer of more than 64 bits"):
        method(8)


@pytest.mark.parametrize("number", [np.inf, np.nan, 3.5])
def test_a_float_is_no_live_integer(device: Device, number: float) -> None:
    """A value that the file declares to be nothing may hold anything by the time a delegate takes it."""
    instructions: list[Instruction] = [MoveCall(0, 1), DelegateCall(0, (1, 2))]
    method = shifted(device, [one(DType.F32), None, None], instructions)
    with pytest.raises(
        GraphError, match=r"instruction 1: a delegate cannot take a tensor f32\[1\] as the integer"
    ):
        method(np.array([number], np.float32))
