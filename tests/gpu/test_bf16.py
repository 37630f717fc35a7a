"""bf16 outside the delegates: NumPy carries raw bits; a delegate takes and gives the numbers they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pteron.dtypes import DType
from pteron.format.records import DelegateCall, KernelCall, MethodRecord, TensorRecord
from pteron.gpu import Device
from pteron.graph import Graph, Node, Tensor
from pteron.host.lookup import find_operator
from pteron.passes import prepare
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.method import Method

NUMBERS = np.array([-2.5, 0.0, 1.0, 3.140625, 2.0**100], np.float32)  # all of them bf16 numbers


def bits(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def relu(device: Device, *, after_view: bool) -> Method:
    """%1 = relu(%0), where the method's tensors are bf16 and the delegate's f32."""
    x, out = Tensor(0, DType.F32, (5,)), Tensor(1, DType.F32, (5,))
    graph = Graph("relu", (Node(0, "aten.relu.default", (x, out)),), (x,), (out,))
    value = TensorRecord(DType.BF16, (5,), (0,), "static", None, False, False, None, False)
    view = find_operator("executorch_prim::et_view.default")
    assert view is not None
    before = (KernelCall(0, (0, 3, 2)),) if after_view else ()
    record = MethodRecord(
        name="forward",
        values=(value, value, value, (5,)),
        inputs=(0,),
        outputs=(1,),
        instructions=(*before, DelegateCall(0, (2 if after_view else 0, 1))),
        operators=("executorch_prim::et_view.default",),
        delegates=(),
    )
    return Method(LoadedMethod("written.pte", record, [prepare(graph)], [view], device))


@pytest.mark.parametrize("after_view", [False, True], ids=["an input", "made on the host"])
def test_a_delegate_reads_the_numbers(device: Device, after_view: bool) -> None:
    (found,) = relu(device, after_view=after_view)(bits(NUMBERS))
    np.testing.assert_array_equal(found, bits(np.maximum(NUMBERS, 0)))


def test_a_tensor_on_the_gpu_is_read_the_same_way(device: Device) -> None:
    method = relu(device, after_view=False)
    (kept,) = method(bits(NUMBERS), on_gpu=True)
    (found,) = method(kept)
    np.testing.assert_array_equal(found, bits(np.maximum(NUMBERS, 0)))
    np.testing.assert_array_equal(bits(np.asarray(kept, np.float32)), found)
    np.testing.assert_array_equal(np.asarray(kept, np.uint16), found)


def test_tensors_of_torch(device: Device) -> None:
    torch = pytest.importorskip("torch")
    given = torch.tensor(NUMBERS, dtype=torch.bfloat16)
    (found,) = relu(device, after_view=False)(given)
    assert found.dtype is torch.bfloat16
    assert torch.equal(found, torch.relu(given))
