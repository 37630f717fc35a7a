"""plan(): pure, sized by the live shapes, its parameters kept once, its hazards led through scratch."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kernel_files import kernel
from sketch import Sketch, plan_at

from pteron.dtypes import DType, Storage
from pteron.errors import GraphError, MisfitError, ShapeError
from pteron.graph import Constant, Tensor
from pteron.ops import Call, Dispatch, Operand, Target, Weight
from pteron.ops.operand import BufferRef, Slot, State
from pteron.ops.rewrite import memory_of
from pteron.ops.terms import Affine
from pteron.plan import ParameterBlock, Plan, ScratchRef
from pteron.plan.repeats import Repeats

GPU = Target(is_cpu=False)


def as_data(plan: Plan) -> tuple[Any, ...]:
    """Everything a plan says, comparable."""
    launches = tuple(
        (launch.node, launch.module.kernel, launch.buffers, launch.block, launch.groups)
        for launch in plan.launches
    )
    return (
        launches,
        plan.blocks,
        plan.scratch_bytes,
        dict(plan.shapes),
        dict(plan.integers),
        plan.tape,
        plan.guards,
    )


def kernels(plan: Plan) -> list[str]:
    return [launch.module.kernel.name for launch in plan.launches]


def words(plan: Plan, index: int) -> dict[str, int]:
    """The whole numbers in a launch's parameters, by name."""
    launch = plan.launches[index]
    assert launch.block is not None
    data = plan.blocks[launch.block].data
    return {
        field.name: struct.unpack_from("<i", data, field.offset)[0]
        for field in launch.module.fields
        if field.scalar != "f32"
    }


# Pure -------------------------------------------------------------------------------------------


def test_the_same_plan_twice() -> None:
    sketch = Sketch()
    x, a, b, p = sketch.tensor(11, 5), sketch.tensor(5, 11), sketch.tensor(11), sketch.symbol()
    sketch.node("aten.t_copy.default", x, a)
    sketch.node("aten.select_copy.int", a, 0, p, b)
    prepared = sketch.prepare([x, p], [b])
    first = plan_at(prepared, {x: (7, 5)}, {p: 2})
    plan_at(prepared, {x: (1, 5)}, {p: 4})
    assert as_data(first) == as_data(plan_at(prepared, {x: (7, 5)}, {p: 2}))
    assert as_data(first) != as_data(plan_at(prepared, {x: (6, 5)}, {p: 2}))


def test_a_call_repeats_another_only_if_its_numbers_are_the_same() -> None:
    """0.0 == -0.0, but what is multiplied by them differs."""
    sketch = Sketch()
    x, a, b = sketch.tensor(5), sketch.tensor(5), sketch.tensor(5)
    sketch.node("aten.mul.Scalar", x, 0.0, a)
    sketch.node("aten.mul.Scalar", x, -0.0, b)
    plan = plan_at(sketch.prepare([x], [a, b]))
    assert len(plan.blocks) == 2


def test_a_call_repeats_another_only_if_it_shares_as_many_constants() -> None:
    """The first norm has one constant as gain and bias, the second has two."""
    sketch = Sketch()
    x, tied, gain, bias = sketch.tensor(2, 5), *(sketch.constant(5) for _ in range(3))
    both = [sketch.tensor(5), sketch.tensor(5)]
    for packed in both:
        sketch.node("et_vk.prepack.default", tied, packed)
    outputs = [sketch.tensor(2, 5), sketch.tensor(2, 5)]
    for (first, second), out in zip((both, (gain, bias)), outputs, strict=True):
        moments = sketch.tensor(2, 1), sketch.tensor(2, 1)
        sketch.node(
            "aten.native_layer_norm.default", x, (5,), first, second, 1e-5, sketch.list(out, *moments)
        )
    plan = plan_at(sketch.prepare([x], outputs))
    keys = [
        [buffer.constant.key for buffer in launch.buffers if isinstance(buffer, Weight)]
        for launch in plan.launches
    ]
    assert [len(set(each)) for each in keys] == [1, 2]


def test_live_shapes_size_grids_and_parameters_only() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(1000, 5), sketch.tensor(1000, 5)
    sketch.node("aten.relu.default", x, out)
    prepared = sketch.prepare([x], [out])
    most, few = plan_at(prepared), plan_at(prepared, {x: (3, 5)})
    assert (most.launches[0].groups, few.launches[0].groups) == ((79, 1, 1), (1, 1, 1))
    assert (words(most, 0)["count"], words(few, 0)["count"]) == (5000, 15)
    assert (most.shapes[out.id], few.shapes[out.id]) == ((1000, 5), (3, 5))
    assert most.launches[0].module is few.launches[0].module
    assert most.launches[0].buffers == few.launches[0].buffers


def test_the_live_shape_chooses_the_kernel() -> None:
    sketch = Sketch()
    x, weight, out = sketch.tensor(64, 32), sketch.constant(16, 32), sketch.tensor(64, 16)
    sketch.node("aten.linear.default", x, weight, None, out)
    for target, rows, name in [
        (Target(), 64, "matmul_thread"),
        (Target(), 1, "matmul_thread"),
        (GPU, 64, "matmul_tiled"),
        (GPU, 1, "matvec"),
    ]:
        prepared = sketch.prepare([x], [out], target)
        assert kernels(plan_at(prepared, {x: (rows, 32)})) == [name]


def test_nothing_is_launched_for_no_elements() -> None:
    sketch = Sketch()
    x, a, out = sketch.tensor(3, 5), sketch.tensor(3, 5), sketch.tensor(3, 5)
    sketch.node("aten.relu.default", x, a)
    sketch.node("aten.relu.default", a, out)
    plan = plan_at(sketch.prepare([x], [out]), {x: (0, 5)})
    assert (plan.launches, plan.blocks) == ((), ())
    assert plan.shapes[out.id] == (0, 5)


def test_a_long_grid_is_folded() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(64 * 10), sketch.tensor(64 * 10)
    sketch.node("aten.relu.default", x, out)
    prepared = sketch.prepare([x], [out], Target(workgroups_max=4))
    x_groups, y_groups, _ = plan_at(prepared).launches[0].grid()
    assert x_groups <= 4
    assert x_groups * y_groups >= 10
    long = Sketch()
    x, out = long.tensor(64 * 17), long.tensor(64 * 17)
    long.node("aten.relu.default", x, out)
    with pytest.raises(MisfitError, match="needs 17 workgroups, the adapter allows 4 per axis, on two axes"):
        plan_at(long.prepare([x], [out], Target(workgroups_max=4)))


def test_a_kernel_with_more_buffers_than_the_device_takes_is_refused() -> None:
    sketch = Sketch()
    x, y, out = (sketch.tensor(3) for _ in range(3))
    sketch.node("aten.add.Tensor", x, y, 1, out)
    assert plan_at(sketch.prepare([x, y], [out], Target(buffers_max=3))).launches
    with pytest.raises(MisfitError, match="kernel binary_alike binds 3 buffers, the adapter allows 2"):
        plan_at(sketch.prepare([x, y], [out], Target(buffers_max=2)))


# Parameters -------------------------------------------------------------------------------------


def test_equal_parameters_are_one_block() -> None:
    sketch = Sketch()
    x, a, b, c = (sketch.tensor(3, 5) for _ in range(4))
    sketch.node("aten.relu.default", x, a)
    sketch.node("aten.abs.default", a, b)
    sketch.node("aten.hardtanh.default", b, -1.0, 1.0, c)
    plan = plan_at(sketch.prepare([x], [c]))
    assert len(plan.blocks) == 2
    assert [launch.block for launch in plan.launches] == [0, 0, 1]


def test_live_blocks_come_first_and_follow_their_integers() -> None:
    sketch = Sketch()
    x, p = sketch.tensor(11, 5), sketch.symbol()
    a, b, c = sketch.tensor(11, 5), sketch.tensor(5), sketch.tensor(5)
    sketch.node("aten.relu.default", x, a)
    sketch.node("aten.select_copy.int", a, 0, p, b)
    sketch.node("aten.relu.default", b, c)
    plan = plan_at(sketch.prepare([x, p], [c]), values={p: 2})
    assert [bool(block.live) for block in plan.blocks] == [True, False, False]
    assert plan.live_blocks == 1
    block = plan.blocks[0]
    ((offset, _),) = block.live
    assert struct.unpack_from("<i", block.fill([3]), offset) == (15,)
    assert struct.unpack_from("<i", block.fill([10]), offset) == (50,)


def test_guards_say_where_a_plan_holds() -> None:
    sketch = Sketch()
    x, p, out = sketch.tensor(11, 5), sketch.symbol(), sketch.tensor(5)
    sketch.node("aten.select_copy.int", x, 0, p, out)
    plan = plan_at(sketch.prepare([x, p], [out]), values={p: 2})
    assert [value for value in range(-12, 13) if plan.numbers({p.id: value}) is not None] == list(range(11))


def test_a_live_number_in_a_float_parameter_is_pinned() -> None:
    sketch = Sketch()
    x, p, out = sketch.tensor(3), sketch.symbol(), sketch.tensor(3)
    sketch.node("aten.add.Tensor", x, x, p, out)
    plan = plan_at(sketch.prepare([x, p], [out]), values={p: 2})
    assert plan.live_blocks == 0
    assert [value for value in range(5) if plan.numbers({p.id: value}) is not None] == [2]


def test_words_wrap_to_32_bits() -> None:
    block = ParameterBlock(bytes(12), ((4, Affine(-1)), (8, Affine(2, ((0, -3),)))))
    assert struct.unpack("<Iii", block.fill([5])) == (0, -1, -13)


def test_numbers_of_the_next_call_follow_those_of_the_last() -> None:
    """None where the plan does not hold, or where a product leaves 64 bits."""
    sketch = Sketch()
    p, doubled, squared, out = (
        sketch.symbol(),
        sketch.symbol(),
        sketch.symbol(),
        sketch.tensor(4, dtype=DType.I32),
    )
    sketch.node("mul", p, 2, doubled)
    sketch.node("mul", p, doubled, squared)
    sketch.node("aten.full.default", (4,), squared, None, None, None, None, out)
    plan = plan_at(sketch.prepare([p], [out]), values={p: 3})
    numbers = plan.numbers({p.id: 3})
    assert numbers is not None
    for value in (0, 5, 32767, 32768, 70000, 1 << 40):
        assert plan.numbers_again(numbers, {p.id: value}) == plan.numbers({p.id: value})
    assert plan.numbers({p.id: 32767}) is not None
    assert plan.numbers({p.id: 32768}) is None


# Indices ----------------------------------------------------------------------------------------


def test_indices_are_checked_where_they_come_from() -> None:
    """Those of an input at every call, also behind a view; those of a constant now."""
    sketch = Sketch()
    x, ids = sketch.tensor(3), sketch.tensor(2, 1, dtype=DType.I64)
    flat, rows = sketch.tensor(2, dtype=DType.I64), sketch.tensor(2, 5)
    sketch.node("aten.view_copy.default", ids, (2,), flat)
    sketch.node("aten.embedding.default", sketch.constant(9, 5), flat, -1, False, False, rows)
    (found,) = plan_at(sketch.prepare([x, ids], [rows])).indices
    assert (found.input, found.high, found.operator) == (1, 8, "aten.embedding.default")
    sketch = Sketch()
    table, ones, out = sketch.tensor(1, 5), sketch.constant(2, dtype=DType.I64), sketch.tensor(2, 5)
    sketch.node("aten.embedding.default", table, ones, -1, False, False, out)
    with pytest.raises(MisfitError, match="index 1 is outside"):
        plan_at(sketch.prepare([table], [out]))


# Calls that repeat ------------------------------------------------------------------------------


def operand(id: int, buffer: BufferRef, shape: tuple[int, ...] = (4,), dtype: DType = DType.F32) -> Operand:
    return Operand(Tensor(id, dtype, (4,)), shape, Target().storage(dtype), buffer)


def weight(layout: str = "plain", key: str = "a") -> Weight:
    constant = Constant(key, DType.F32, (4,), memoryview(bytes(16)))
    return Weight(constant, (4,), layout, ("f32",), 4, Storage.F32)


X, OUT = operand(0, Slot(0)), operand(1, Slot(1))


@pytest.mark.parametrize(
    ("inputs", "repeats"),
    [
        ([operand(7, Slot(7)), operand(8, weight(key="b")), 1], True),
        ([operand(0, Slot(0)), operand(8, weight()), 1], True),
        ([operand(7, Slot(7)), operand(8, weight()), 2], False),
        ([operand(7, Slot(7)), operand(8, weight()), 1.0], False),
        ([operand(7, Slot(7)), operand(8, weight()), True], False),
        ([operand(7, Slot(7)), operand(8, weight()), (1,)], False),
        ([operand(7, Slot(7)), operand(8, weight("other")), 1], False),
        ([operand(7, Slot(7)), operand(8, Slot(8)), 1], False),
        ([operand(7, State(7)), operand(8, weight()), 1], False),
        ([operand(7, Slot(7), (3,)), operand(8, weight()), 1], False),
        ([operand(7, Slot(7), dtype=DType.I32), operand(8, weight()), 1], False),
        ([operand(7, Slot(9)), operand(8, weight()), 1], False),  # it writes what it reads
        ([operand(9, Slot(7)), operand(8, weight()), 1], False),
    ],
)
def test_a_call_repeats_another_of_its_kind(inputs: list[object], repeats: bool) -> None:
    call, ran = cast(Call, SimpleNamespace(operator=SimpleNamespace(name="op"))), 0

    def made(x: Operand, bound: Operand, out: Operand) -> Iterator[Dispatch]:
        nonlocal ran
        ran += 1
        yield Dispatch(kernel("unary"), x=x, weight=bound, out=out, threads=4)

    first, found = [X, operand(2, weight()), 1], Repeats()
    found.dispatches(call, first, [OUT], made(X, cast(Operand, first[1]), OUT))
    out = operand(9, Slot(9))
    x, bound = cast(tuple[Operand, Operand], tuple(inputs[:2]))
    (dispatch,) = found.dispatches(call, inputs, [out], made(x, bound, out))
    assert isinstance(dispatch, Dispatch)
    assert ran == (1 if repeats else 2)
    assert [memory_of(each) for each in dispatch.bindings.values()] == [x.buffer, bound.buffer, out.buffer]


# Hazards ----------------------------------------------------------------------------------------


def test_an_update_in_place_goes_through_scratch() -> None:
    sketch = Sketch()
    state, x = sketch.constant(3, 5), sketch.tensor(3, 5)
    sketch.node("aten.add.Tensor", state, x, 1, state)
    prepared = sketch.prepare([x], [state])
    plan = plan_at(prepared)
    assert kernels(plan) == ["binary_alike", "copy"]
    added, brought_home = plan.launches
    assert added.buffers == (State(state.id), prepared.placement.buffers[x.id], ScratchRef(0))
    assert brought_home.buffers == (ScratchRef(0), State(state.id))
    assert plan.scratch_bytes == (60,)


def test_scratch_is_shared_by_nodes() -> None:
    sketch = Sketch()
    tensors = [sketch.constant(size) for size in (3, 7, 5)]
    for tensor in tensors:
        sketch.node("aten.relu.default", tensor, tensor)
    assert plan_at(sketch.prepare([], tensors)).scratch_bytes == (28,)


def test_one_operand_twice_is_no_hazard() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(3), sketch.tensor(3)
    sketch.node("aten.mul.Tensor", x, x, out)
    assert plan_at(sketch.prepare([x], [out])).launches[0].buffers == (Slot(0), Slot(0), Slot(1))


@pytest.mark.parametrize(("memory", "expected"), [(2, ["unary", "unary"]), (0, ["unary", "copy", "unary"])])
def test_a_copy_stays_where_its_reader_writes_to_its_source(memory: int, expected: list[str]) -> None:
    """The last of one row is a copy that changes nothing; without it a kernel would read what it writes."""
    sketch = Sketch()
    x, a = sketch.tensor(7, 5), sketch.tensor(7, 5, memory=0)
    last, out = sketch.tensor(1, 5, memory=1), sketch.tensor(1, 5, memory=memory)
    sketch.node("aten.relu.default", x, a)
    sketch.node("aten.slice_copy.Tensor", a, 0, -1, (1 << 63) - 1, 1, last)
    sketch.node("aten.abs.default", last, out)
    prepared = sketch.prepare([x], [out])
    assert kernels(plan_at(prepared, {x: (1, 5)})) == expected
    assert kernels(plan_at(prepared, {x: (2, 5)})) == ["unary", "copy", "unary"]


# Refusals ---------------------------------------------------------------------------------------


def test_a_refusal_names_graph_node_operator_and_shapes() -> None:
    sketch = Sketch()
    x, y, out = sketch.tensor(3, 5), sketch.tensor(5, 7), sketch.tensor(3, 7)
    sketch.node("aten.mm.default", x, y, out)
    prepared = sketch.prepare([x, y], [out])
    with pytest.raises(
        ShapeError,
        match=r"^sketch, node 0 aten.mm.default: .* the second's rows; got %0:f32\[3, 4\], %1:f32\[5, 7\]$",
    ):
        plan_at(prepared, {x: (3, 4)})


def test_what_never_fits_is_refused_at_load() -> None:
    sketch = Sketch()
    x, y, out = sketch.tensor(3, 5), sketch.tensor(4, 7), sketch.tensor(3, 7)
    sketch.node("aten.mm.default", x, y, out)
    with pytest.raises(GraphError, match=r"node 0 aten.mm.default: .* the second's rows"):
        sketch.prepare([x, y], [out]).plan_at_maximum()


def test_what_fits_for_some_integers_is_not_refused_at_load() -> None:
    """Rows [p, 4) of one tensor beside two of another: right for p = 2 alone. At load p is 0."""
    sketch = Sketch()
    x, p, y = sketch.tensor(11, 5), sketch.symbol(), sketch.tensor(2, 5)
    rows, out = sketch.tensor(4, 5), sketch.tensor(4, 5)
    sketch.node("aten.slice_copy.Tensor", x, 0, p, 4, 1, rows)
    sketch.node("aten.add.Tensor", rows, y, 1, out)
    prepared = sketch.prepare([x, p, y], [out])
    assert prepared.plan_at_maximum() is None
    assert plan_at(prepared, values={p: 2}).shapes[out.id] == (2, 5)


def test_a_claim_beyond_the_device_that_no_shape_rule_makes() -> None:
    sketch = Sketch()
    x, claimed, out = sketch.tensor(4), sketch.tensor(1 << 10), sketch.tensor(4)
    sketch.node("aten.relu.default", x, claimed)
    sketch.node("aten.relu.default", claimed, out)
    with pytest.raises(GraphError, match=r"node 0 aten.relu.default.* computes \[4\] at most"):
        sketch.prepare([x], [out], Target(binding_bytes_max=4095, uniform_bytes_max=0)).plan_at_maximum()
    assert sketch.prepare([x], [out], Target(binding_bytes_max=4096, uniform_bytes_max=0)).plan_at_maximum()


def test_shapes_follow_live_integers() -> None:
    sketch = Sketch()
    x, p, out = sketch.tensor(11, 5), sketch.symbol(), sketch.tensor(11, 5)
    sketch.node("aten.slice_copy.Tensor", x, 0, 0, p, 1, out)
    prepared = sketch.prepare([x, p], [out])
    assert prepared.plan_at_maximum()
    for value in (0, 3, 0):
        assert prepared.shapes(prepared.shapes_max, {p.id: value})[out.id] == (value, 5)
    assert prepared.shapes(((2, 5), None), {p.id: 0})[x.id] == (2, 5)


def test_an_output_that_does_not_fit() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(3, 5), sketch.tensor(3, 4)
    sketch.node("aten.relu.default", x, out)
    with pytest.raises(
        ShapeError, match=r"output \[3, 5\] does not fit into %1:f32\[3, 4\]; inputs %0:f32\[3, 5\]"
    ):
        plan_at(sketch.prepare([x], [out]))


def test_operands_that_must_share_an_element_type() -> None:
    sketch = Sketch()
    table, indices = sketch.tensor(3, 5, dtype=DType.I32), sketch.tensor(2, dtype=DType.I32)
    out = sketch.tensor(2, 5)
    sketch.node("aten.embedding.default", table, indices, -1, False, False, out)
    with pytest.raises(ShapeError, match=r"gather takes one element type .* x: %0:i32\[3, 5\]"):
        plan_at(sketch.prepare([table, indices], [out]))


# Cost --------------------------------------------------------------------------------------------


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of Python functions a piece of work makes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def plan_chain(count: int, memories: int | None) -> None:
    """Prepare and plan a chain of nodes whose tensors share `memories` memory objects, or have one each."""
    sketch = Sketch()
    tensors = [sketch.tensor(4, 3)]
    for index in range(count):
        tensors.append(sketch.tensor(4, 3, memory=index % memories if memories else index))
        sketch.node("aten.relu.default", *tensors[-2:])
    plan_at(sketch.prepare(tensors[:1], tensors[-1:]))


@pytest.mark.parametrize("memories", [2, None], ids=["shared", "own"])
def test_a_node_costs_the_same_in_a_larger_graph(memories: int | None) -> None:
    """Checks, rewrites, placement and planning."""
    plan_chain(10, memories)  # what is made once in a process
    small, large = (calls_of(partial(plan_chain, count, memories)) / count for count in (60, 400))
    assert large < 1.2 * small
