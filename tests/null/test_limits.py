"""What a program may use on the host: limits are met before memory is taken or work is done, and named."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from host_machine import Machine, tensor

from pteron import DType, GraphError, HostError, InputError
from pteron.format.records import (
    EValue,
    FreeCall,
    IndexList,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
)
from pteron.host import limits
from pteron.host.limits import Limits

ADD, COPY = "executorch_prim::add.Scalar", "executorch_prim::et_copy_index.tensor"


def refused(machine: Machine, words: str) -> None:
    """A call fails with these words, and soon."""
    began = time.process_time()
    with pytest.raises(HostError, match=words):
        machine()
    assert time.process_time() - began < 10


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
        ("mod", ["%03000000000d", 5]),
        ("add", ["x", "x"]),
        ("mul", [(1.0, 2.0), 1 << 40]),
    ],
)
def test_numbers_are_made_of_numbers(name: str, values: Sequence[EValue]) -> None:
    refused(prim(name, values), rf"executorch_prim::{name}.Scalar: takes numbers, found \w+")


def full(size: int, dynamism: str = "unbound") -> Machine:
    values: list[EValue] = [tensor(3), tensor(4, dynamism=dynamism), IndexList("int", (3,)), size, 1.0]
    return Machine(values, ["aten::full.out"], [KernelCall(0, (2, 4, 1, 1))])


def test_bytes_are_known_before_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(full(1 << 40), r"full.out: 4,398,046,511,104 bytes of tensors .* PTERON_HOST_BYTES can raise")
    with pytest.raises(GraphError, match=r"full.out writes a tensor f32\[200000000\] to %1, which is"):
        full(200_000_000, "static")()
    monkeypatch.setenv("PTERON_HOST_BYTES", "1000")
    assert full(250)()[0].shape == (250,)
    refused(full(251), "1,004 bytes of tensors on the host; the limit is 1,000")


def test_bytes_of_all_values_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_HOST_BYTES", "30")
    values: list[EValue] = [tensor(3), tensor(3), tensor(3), tensor(3)]
    each: list[Instruction] = [KernelCall(0, (0, id, id)) for id in (1, 2, 3)]
    refused(Machine(values, ["aten::neg.out"], each), "36 bytes")
    freed: list[Instruction] = [each[0], FreeCall(1), each[1], FreeCall(2), each[2]]
    assert Machine(values, ["aten::neg.out"], freed, (3,))()


def test_bytes_of_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_HOST_BYTES", "11")
    with pytest.raises(HostError, match="state %1: 12 bytes"):
        Machine([tensor(3), tensor(3), 1], ["aten::add_.Tensor"], [KernelCall(0, (1, 0, 2, 1))])


def test_work_counts_before_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two views touch 6 elements each, and ten products of 3x1 by 1x3 15 each: 162, at 16 operations."""
    values: list[EValue] = [tensor(3), tensor(3, 1), tensor(1, 3), tensor(3, 3), 3, 1]
    values += [IndexList("int", (4, 5)), IndexList("int", (5, 4))]
    calls: list[Instruction] = [
        KernelCall(0, (0, 6, 1, 1)),
        KernelCall(0, (0, 7, 2, 2)),
        *[KernelCall(1, (1, 2, 3, 3))] * 10,
    ]
    operators = ["aten::view_copy.out", "aten::mm.out"]
    np.testing.assert_array_equal(Machine(values, operators, calls, (3,))()[0][0], [1, 2, 3])
    monkeypatch.setenv("PTERON_HOST_WORK", "2591")
    refused(Machine(values, operators, calls, (3,)), "mm.out: 2,592 operations; the limit is 2,591")


def test_a_loop_has_a_limit_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STEPS_MAX", 1 << 40)
    monkeypatch.setenv("PTERON_HOST_SECONDS", "1")
    calls: list[Instruction] = [MoveCall(2, 1), JumpFalseCall(1, 0)]
    refused(
        Machine([tensor(3), False, False], [], calls),
        "still looping .* the limit is 1, .*PTERON_HOST_SECONDS",
    )


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


def test_rows_are_appended_without_copying_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of 1,000 rows of 3 is 3,000 elements, not half a million; two numbers a row come to it."""
    monkeypatch.setenv("PTERON_HOST_WORK", str(16 * (3000 + 2000)))
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


def test_limits_are_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Limits.chosen() == Limits()
    for text in ("0", "-1", "1e9", "", "many"):
        monkeypatch.setenv("PTERON_HOST_BYTES", text)
        with pytest.raises(InputError, match=r"PTERON_HOST_BYTES is .*; expected a whole number above 0"):
            Limits.chosen()


def test_half_precision_numbers_are_read_as_numbers() -> None:
    one = np.array([0x3F80], np.uint16)
    values: list[EValue] = [tensor(3), tensor(1, dtype=DType.BF16, data=one, is_constant=True), 0.0]
    assert Machine(values, ["aten::_local_scalar_dense"], [KernelCall(0, (1, 2))], (2,))() == [1.0]
