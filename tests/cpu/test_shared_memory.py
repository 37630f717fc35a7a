"""Tensors that no instruction writes: they are others in the same memory, in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from host_machine import Machine

from pteron import DType, GraphError
from pteron.format.records import EValue, FreeCall, Instruction, KernelCall, MoveCall, TensorRecord

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def tensor(
    *sizes: int,
    place: tuple[int, int] | None = None,
    order: tuple[int, ...] | None = None,
    dtype: DType = DType.F32,
    dynamism: Literal["static", "bound"] = "static",
    data: Sequence[float] | None = None,
) -> TensorRecord:
    order = order or tuple(range(len(sizes)))
    constant = None if data is None else memoryview(np.array(data, dtype.numpy).tobytes())
    return TensorRecord(dtype, sizes, order, dynamism, constant, data is not None, False, None, False, place)


def run(values: Sequence[EValue], instructions: Sequence[Instruction], outputs: Sequence[int]) -> list[Any]:
    """What a method of one input, %0, gives; its only operator copies."""
    return Machine(values, ["dim_order_ops::_clone_dim_order.out"], instructions, outputs)(X)


def copied(source: int, target: int) -> KernelCall:
    """A copy, with neither of its options; %1 is None."""
    return KernelCall(0, (source, 1, 1, target))


def test_a_view_of_what_was_written() -> None:
    """%2 is a copy of the input, and %3 has the same memory as %2; %4 is computed from %3, elsewhere."""
    values = [
        tensor(2, 3),
        None,
        tensor(2, 3, place=(1, 64)),
        tensor(3, 2, place=(1, 64)),
        tensor(3, 2, place=(1, 0)),
    ]
    made, view = run(values, [copied(0, 2), copied(3, 4)], (4, 3))
    np.testing.assert_array_equal(made, X.reshape(3, 2))
    np.testing.assert_array_equal(view, X.reshape(3, 2))


def test_a_view_of_an_input() -> None:
    values = [tensor(2, 3, place=(1, 0)), None, tensor(6, place=(1, 0)), tensor(6, place=(1, 64))]
    (found,) = run(values, [copied(2, 3)], (3,))
    np.testing.assert_array_equal(found, X.ravel())


def test_the_latest_writer_is_meant() -> None:
    """%2, %3, %4 and %5 share memory: %3 is read after %2 was written, %5 after %4 was."""
    at = (1, 0)
    values = [
        tensor(2, 3), None, tensor(2, 3, place=at), tensor(6, place=at), tensor(6, place=at),
        tensor(3, 2, place=at), tensor(6), tensor(3, 2), tensor(6, data=[6, 5, 4, 3, 2, 1]),
    ]  # fmt: skip
    first, second = run(values, [copied(0, 2), copied(3, 6), copied(8, 4), copied(5, 7)], (6, 7))
    np.testing.assert_array_equal(first, X.ravel())
    np.testing.assert_array_equal(second, [[6, 5], [4, 3], [2, 1]])


def test_a_place_that_is_moved_to() -> None:
    values = [tensor(2, 3), None, tensor(2, 3, place=(1, 0)), tensor(6, place=(1, 0))]
    (found,) = run(values, [MoveCall(0, 2)], (3,))
    np.testing.assert_array_equal(found, X.ravel())


def test_memory_in_another_order_of_dims() -> None:
    """A flat view of a tensor stored column by column gives its elements in that order; a view stored column
    by column has its columns one after the other."""
    columns = tensor(2, 3, place=(1, 0), order=(1, 0))
    (found,) = run([tensor(2, 3), None, columns, tensor(6, place=(1, 0))], [copied(0, 2)], (3,))
    np.testing.assert_array_equal(found, X.T.ravel())
    columns = tensor(3, 2, place=(1, 0), order=(1, 0))
    (found,) = run([tensor(2, 3), None, tensor(2, 3, place=(1, 0)), columns], [copied(0, 2)], (3,))
    np.testing.assert_array_equal(found, X.T)


@pytest.mark.parametrize(
    "view",
    [
        tensor(6, place=(1, 16)),
        tensor(6, place=(2, 0)),
        tensor(6),
        tensor(5, place=(1, 0)),
        tensor(6, place=(1, 0), dtype=DType.I32),
        tensor(6, place=(1, 0), dynamism="bound"),
    ],
)
def test_what_is_no_view_was_not_written(view: TensorRecord) -> None:
    values = [tensor(2, 3), None, tensor(2, 3, place=(1, 0)), view]
    with pytest.raises(GraphError, match="nothing wrote the output %3"):
        run(values, [copied(0, 2)], (3,))


def test_a_view_of_what_was_freed() -> None:
    values = [tensor(2, 3), None, tensor(2, 3, place=(1, 0)), tensor(6, place=(1, 0))]
    with pytest.raises(GraphError, match="nothing wrote the output %3"):
        run(values, [copied(0, 2), FreeCall(2)], (3,))
