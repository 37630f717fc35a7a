"""Joining dispatches in a plan: which joins are sound, which buffers may stay unwritten, where scratch
memory is placed."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_files import kernel

from pteron.dtypes import DType
from pteron.graph import Node, Tensor
from pteron.ops import Dispatch, Operand, RequirementError, Target
from pteron.ops.live import Trace
from pteron.ops.operand import Slot
from pteron.ops.rewrite import IsRead, memory_of, same_memory
from pteron.plan import ParameterBlock, ScratchRef
from pteron.plan.collect import Collector, block_of
from pteron.plan.repeats import rebind
from pteron.wgsl import compose

FIRST, SECOND = Node(0, "first", ()), Node(1, "second", ())
GPU = Target(is_cpu=False)
COUNT = 6


def operand(slot: int) -> Operand:
    return Operand(Tensor(slot, DType.F32, (COUNT,)), (COUNT,), GPU.storage(DType.F32), Slot(slot))


def scratch() -> Operand:
    return operand(0).scratch()


def unary(x: Operand, out: Operand) -> Dispatch:
    numbers: dict[str, Any] = {"count": COUNT, "integer": 0, "first": 0.0, "second": 0.0}
    return Dispatch(kernel("unary"), x=x, out=out, **numbers, threads=COUNT)


def both(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """Join two dispatches into one if the second reads the output of the first and nothing else does."""
    made, read = first.bindings["out"], second.bindings["x"]
    if not same_memory(made, read) or is_read(made):
        return None
    x, out = first.bindings["x"], second.bindings["out"]
    assert isinstance(x, Operand)
    assert isinstance(out, Operand)
    return unary(x, out)


def collector(target: Target = GPU) -> Collector:
    return Collector(target, [both])


def never(_: Operand) -> bool:
    return False


def test_the_last_of_a_node_and_the_first_of_the_next() -> None:
    made = collector()
    made.add(FIRST, [unary(operand(0), operand(1))], never)
    made.add(SECOND, [], never)  # a view
    made.add(SECOND, [unary(operand(1), operand(2))], never)
    (launch,) = made.launches
    assert launch.buffers == (Slot(0), Slot(2))
    assert launch.node is FIRST
    assert launch.nodes == {FIRST.index, SECOND.index}


def test_dispatches_of_one_node() -> None:
    """Through scratch memory, and a join that is joined again."""
    between = scratch()
    made = collector()
    made.add(FIRST, [unary(operand(0), between), unary(between, operand(2))], never)
    assert [launch.buffers for launch in made.launches] == [(Slot(0), Slot(2))]
    made = collector()
    made.add(FIRST, [unary(operand(slot), operand(slot + 1)) for slot in range(3)], never)
    assert [launch.buffers for launch in made.launches] == [(Slot(0), Slot(3))]


def test_what_later_nodes_read() -> None:
    made = collector()
    made.add(FIRST, [unary(operand(0), operand(1))], never)
    made.add(SECOND, [unary(operand(1), operand(2))], lambda bound: bound.buffer == Slot(1))
    assert len(made.launches) == 2


@pytest.mark.parametrize("between", [scratch, lambda: operand(1)], ids=["scratch", "slot"])
def test_what_the_same_node_reads(between: Callable[[], Operand]) -> None:
    middle = between()
    made = collector()
    made.add(FIRST, [unary(operand(0), middle), unary(middle, operand(2)), unary(middle, operand(3))], never)
    assert len(made.launches) == 3


def test_other_elements_of_the_same_memory() -> None:
    half = Operand(Tensor(9, DType.F32, (3,)), (3,), GPU.storage(DType.F32), Slot(1))
    assert memory_of(half) == memory_of(operand(1))
    assert not same_memory(half, operand(1))
    assert not same_memory(scratch(), scratch())


def test_what_would_write_to_what_it_reads() -> None:
    """The memory of what the first read is free when the second writes."""
    made = collector()
    made.add(FIRST, [unary(operand(0), operand(1))], never)
    made.add(SECOND, [unary(operand(1), operand(0))], never)
    assert [launch.buffers for launch in made.launches] == [(Slot(0), Slot(1)), (Slot(1), Slot(0))]


def test_more_buffers_than_the_device_binds() -> None:
    def sum_of_both(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch:
        a, b, out = first.bindings["x"], second.bindings["x"], second.bindings["out"]
        return Dispatch(kernel("binary_alike"), a=a, b=b, out=out, count=COUNT, alpha=1.0, threads=COUNT)

    for most, count in ((3, 1), (2, 2)):
        made = Collector(Target(is_cpu=False, buffers_max=most), [sum_of_both])
        made.add(FIRST, [unary(operand(0), operand(1)), unary(operand(1), operand(2))], never)
        assert len(made.launches) == count


def test_a_pair_that_repeats_another() -> None:
    """Repeated dispatches have the kernel and the parameters of the first ones. They join as the first pair
    did, with their own tensors, only if their memory and its readers are alike."""
    first, second = unary(operand(0), operand(1)), unary(operand(1), operand(2))

    def launched(*pairs: tuple[int, int, int, int], read: int = -1) -> list[tuple[object, ...]]:
        """The buffers of all launches; a pair is x and out of the first, then of the second."""
        made = collector()
        for x, made_slot, read_slot, out in pairs:
            ahead = rebind(first, {"x": operand(x), "out": operand(made_slot)})
            behind = rebind(second, {"x": operand(read_slot), "out": operand(out)})
            made.add(FIRST, [ahead, behind], lambda bound: bound.buffer == Slot(read))
        return [launch.buffers for launch in made.launches]

    joined, apart = (Slot(3), Slot(5)), [(Slot(3), Slot(4)), (Slot(6), Slot(5))]
    assert launched((0, 1, 1, 2), (3, 4, 4, 5)) == [(Slot(0), Slot(2)), joined]
    assert launched((0, 1, 1, 2), (3, 4, 6, 5)) == [(Slot(0), Slot(2)), *apart]
    assert launched((3, 4, 6, 5), (0, 1, 1, 2)) == [*apart, (Slot(0), Slot(2))]
    assert launched((0, 1, 1, 2), (3, 4, 4, 5), read=4)[1:] == [(Slot(3), Slot(4)), (Slot(4), Slot(5))]
    assert launched((0, 1, 1, 2), (3, 4, 4, 5), read=1)[2:] == [joined]


def test_scratch_memory_is_kept_apart() -> None:
    """What is joined reads scratch memory of one node and writes that of the next."""
    left, within, other = scratch(), scratch(), scratch()

    def only_across(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
        return both(first, second, is_read) if memory_of(first.bindings["out"]) == Slot(1) else None

    made = Collector(GPU, [only_across])
    made.add(FIRST, [unary(operand(0), left), unary(left, operand(1))], never)
    made.add(SECOND, [unary(operand(1), within), unary(within, other), unary(other, operand(2))], never)
    assert [launch.buffers for launch in made.launches] == [
        (Slot(0), ScratchRef(0)),
        (ScratchRef(0), ScratchRef(1)),
        (ScratchRef(1), ScratchRef(2)),
        (ScratchRef(2), Slot(2)),
    ]


# Parameters -------------------------------------------------------------------------------------


def packed(**changed: Any) -> ParameterBlock:
    """The block of a launch with these numbers."""
    numbers = {"count": COUNT, "integer": 0, "first": 0.0, "second": 0.0} | changed
    dispatch = Dispatch(kernel("unary"), x=operand(0), out=operand(1), **numbers, threads=COUNT)
    return block_of(dispatch, compose(dispatch.kernel))


def test_numbers_that_do_not_fit_are_refused() -> None:
    for wrong in (-1, 1 << 32):
        with pytest.raises(RequirementError, match=f"count = {wrong} does not fit u32"):
            packed(count=wrong)
    assert packed(count=(1 << 32) - 1, integer=-(1 << 31)).data[:8] == struct.pack(
        "<Ii", (1 << 32) - 1, -(1 << 31)
    )
    with pytest.raises(RequirementError, match="integer = 2147483648 does not fit i32"):
        packed(integer=1 << 31)
    with pytest.raises(RequirementError, match="count takes at most 1 values, got 2"):
        packed(count=(1, 2))
    with pytest.raises(ValueError, match="has the parameters"):
        packed(other=1)


@pytest.mark.parametrize(("name", "low"), [("count", 0), ("integer", -(1 << 31))])
def test_a_live_number_stays_within_its_word(name: str, low: int) -> None:
    trace = Trace({0: 5})
    block = packed(**{name: trace.symbol(0)})
    assert [offset for offset, _ in block.live] == [0 if name == "count" else 4]
    holds = [
        all(guard.holds([value]) for guard in trace.guards()) for value in (low - 1, low, 2**31 - 1, 2**31)
    ]
    assert holds == [False, True, True, False]
    with pytest.raises(RequirementError, match=f"{name} = {low - 1}. does not fit"):
        packed(**{name: Trace({0: low - 1}).symbol(0)})


def test_floats_beyond_32_bits_are_the_largest() -> None:
    largest = np.finfo(np.float32).max
    for given, found in ((1e300, largest), (-1e300, -largest), (-math.inf, -math.inf), (0.5, 0.5)):
        assert struct.unpack_from("<f", packed(first=given).data, 8)[0] == found
