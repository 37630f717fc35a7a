"""Host operators that Pteron defines: numbers, rows that a loop appends, and conversions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from host_machine import Machine, tensor

from pteron import DType, HostError
from pteron.format.records import (
    EValue,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
)
from pteron.host.lookup import find_operator
from pteron.host.values import HostTensor, UnsetTensor

ADD, COPY = "executorch_prim::add.Scalar", "executorch_prim::et_copy_index.tensor"


def refused(machine: Machine, words: str) -> None:
    with pytest.raises(HostError, match=words):
        machine()


def prim(name: str, values: Sequence[EValue], count: int = 1) -> Machine:
    """`%1 = %1 <name> %2`, `count` times."""
    calls: list[Instruction] = [KernelCall(0, (1, 2, 1))] * count
    return Machine([tensor(3), *values], [f"executorch_prim::{name}.Scalar"], calls)


def test_integers_have_64_bits() -> None:
    assert prim("mul", [1 << 62, -2])() == [-(1 << 63)]
    refused(prim("mul", [1 << 62, 2]), "mul.Scalar: an integer of more than 64 bits")
    squared: list[Instruction] = [KernelCall(0, (1, 1, 1))] * 60
    refused(Machine([tensor(3), 3], ["executorch_prim::mul.Scalar"], squared), "more than 64 bits")
    refused(
        Machine([tensor(3), 1e300, 0], ["executorch_prim::trunc.Scalar"], [KernelCall(0, (1, 2))]), "64 bits"
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mod", ["%05d", 5]),
        ("add", ["x", "x"]),
        ("mul", [(1.0, 2.0), 1 << 40]),
    ],
)
def test_numbers_are_made_of_numbers(name: str, values: Sequence[EValue]) -> None:
    refused(prim(name, values), rf"executorch_prim::{name}.Scalar: takes numbers, found \w+")


def rows(count: int) -> Machine:
    """Rows of x, as many as this: a loop that appends one each time."""
    values: list[EValue] = [tensor(3), tensor(0, 3, dynamism="unbound"), 0, 1, count, False]
    calls: list[Instruction] = [
        KernelCall(0, (1, 0, 2, 1)),
        KernelCall(1, (2, 3, 2)),
        KernelCall(2, (2, 4, 5)),
        JumpFalseCall(5, 0),
    ]
    return Machine(values, [COPY, ADD, "executorch_prim::ge.Scalar"], calls)


def test_rows_are_appended() -> None:
    (found,) = rows(1000)()
    np.testing.assert_array_equal(found, np.tile([1, 2, 3], (1000, 1)))


def test_rows_that_were_moved_stay_as_they_were() -> None:
    """%6 = rows up to here; both go on from there, each with a row of its own."""
    values: list[EValue] = [
        tensor(3), tensor(0, 3, dynamism="unbound"), 0, 1, 2, tensor(3), tensor(0, 3, dynamism="unbound"),
    ]  # fmt: skip
    calls: list[Instruction] = [
        KernelCall(1, (0, 5, 5)),
        *[KernelCall(0, (1, 0, id, 1)) for id in (2, 3)],
        MoveCall(1, 6),
        KernelCall(0, (1, 5, 4, 1)),
        KernelCall(0, (6, 0, 4, 6)),
        KernelCall(0, (6, 5, 3, 6)),  # and over a row that is there, which is then the last
    ]
    first, second = Machine(values, [COPY, "aten::neg.out"], calls, (1, 6))()
    np.testing.assert_array_equal(first, [[1, 2, 3], [1, 2, 3], [-1, -2, -3]])
    np.testing.assert_array_equal(second, [[1, 2, 3], [-1, -2, -3]])


def test_rows_of_other_lengths() -> None:
    values: list[EValue] = [tensor(3), tensor(0, 3, dynamism="unbound"), 0, 1, tensor(1, data=[7])]
    calls: list[Instruction] = [KernelCall(0, (1, 0, 2, 1)), KernelCall(0, (1, 4, 3, 1))]
    refused(Machine(values, [COPY], calls), r"a row \[1\] is written to rows \[3\]")


@pytest.mark.parametrize("index", [-1, 1, 1 << 40])
def test_rows_that_are_not_there(index: int) -> None:
    values: list[EValue] = [tensor(3), tensor(0, 3, dynamism="unbound"), index]
    refused(
        Machine(values, [COPY], [KernelCall(0, (1, 0, 2, 1))]),
        f"row {index} is written to a tensor of 0 rows",
    )


def test_a_copy_has_memory_of_its_own() -> None:
    x = HostTensor(np.arange(3, dtype=np.float32), DType.F32).protected()
    for name in ("_clone_dim_order", "_to_dim_order_copy"):
        operator = find_operator(f"dim_order_ops::{name}.out")
        assert operator is not None
        (written,) = operator.run([x, False, (0,), UnsetTensor(DType.F32)]).values()
        assert isinstance(written, HostTensor)
        assert written.array.flags.writeable
        assert not np.may_share_memory(written.array, x.array)


def test_half_precision_numbers_are_read_as_numbers() -> None:
    one = np.array([0x3F80], np.uint16)
    values: list[EValue] = [tensor(3), tensor(1, dtype=DType.BF16, data=one, is_constant=True), 0.0]
    assert Machine(values, ["aten::_local_scalar_dense"], [KernelCall(0, (1, 2))], (2,))() == [1.0]


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("aten::sym_size.int", (2,), r"a tensor \[2, 3\] has no dim 2"),
        ("aten::sym_size.int", (-3,), "has no dim -3"),
        ("aten::sym_size.int", (0.0,), "has no dim 0.0"),
        ("aten::_local_scalar_dense", (), r"read from one element, not from \[2, 3\]"),
    ],
)
def test_what_is_not_there_is_not_read(name: str, given: tuple[object, ...], words: str) -> None:
    operator = find_operator(name)
    assert operator is not None
    with pytest.raises(HostError, match=words):
        operator.run([HostTensor(np.zeros((2, 3), np.float32), DType.F32), *given])


@pytest.mark.parametrize(
    ("size", "order", "words"),
    [
        ((2, 3), (0, 0), r"\(0, 0\) is not an order of 2 dims"),
        ((2, 3), (0,), "is not an order of 2 dims"),
        ((2, -1), (0, 1), "sizes are integers of at least 0"),
        ((2, 1.0), (0, 1), "sizes are integers of at least 0"),
    ],
)
def test_empty_tensors_that_cannot_be(size: object, order: object, words: str) -> None:
    operator = find_operator("dim_order_ops::_empty_dim_order.out")
    assert operator is not None
    with pytest.raises(HostError, match=words):
        operator.run([size, order, UnsetTensor(DType.F32)])
    (made,) = operator.run([(0, 2), (1, 0), UnsetTensor(DType.I8)]).values()
    assert isinstance(made, HostTensor)
    assert made.array.shape == (0, 2)
    assert made.array.dtype == np.int8
    assert [(each.name, each.is_read) for each in operator.parameters if each.is_written] == [("out", False)]
