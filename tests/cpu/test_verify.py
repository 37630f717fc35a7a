"""Every launch is proven before it is recorded: graphs that would leave their memory are refused, by name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_files import kernel
from sketch import Sketch, plan_at

from pteron.dtypes import DType, Storage
from pteron.errors import GraphError, MisfitError, PteronError, ShapeError
from pteron.graph import Constant, Graph, Node, SymInt, Tensor
from pteron.ops import OPERATORS, AnyInt, Dispatch, Operand, RequirementError, Scratch, Target
from pteron.ops.live import Trace
from pteron.ops.operand import Slot, Weight
from pteron.ops.rewrite import REWRITES
from pteron.ops.terms import dim_id
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.plan.collect import Collector
from pteron.plan.verify import check_memory, verify
from pteron.wgsl import compose

GPU = Target(is_cpu=False, workgroup_bytes_max=49152)
ROUTES = pytest.mark.parametrize("target", [Target(), GPU], ids=["software", "hardware"])
LINEAR = "et_vk.linear_q4gsw.default"


def refused(sketch: Sketch, inputs: list[Tensor | SymInt], output: Tensor, target: Target) -> str:
    """The message with which a graph is refused, at load or when it is planned."""
    with pytest.raises(PteronError) as caught:
        plan_at(sketch.prepare(inputs, [output], target))
    assert isinstance(caught.value, (GraphError, MisfitError))
    return str(caught.value)


def q4(
    sketch: Sketch,
    columns: int = 16,
    depth: int = 32,
    row_bytes: int | None = None,
    group: int | SymInt = 32,
    groups: int = 1,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """x and the output of a 4-bit product."""
    x, out = sketch.tensor(1, depth), sketch.tensor(1, columns)
    weights = sketch.constant(columns, row_bytes or depth // 2, dtype=DType.U8)
    sketch.node(LINEAR, x, weights, sketch.constant(groups, columns), group, bias, out)
    return x, out


# Graphs that would leave their memory ----------------------------------------------------------


@ROUTES
def test_a_tensor_written_twice(target: Target) -> None:
    """First as a view of 4 elements, then by a product that stores 4,096 bytes."""
    sketch = Sketch()
    small = sketch.tensor(1, 4)
    x, y = q4(sketch, columns=1024)
    sketch.nodes.clear()
    sketch.node("aten.view_copy.default", small, (1, 4), y)
    weights, scales = sketch.constant(1024, 16, dtype=DType.U8), sketch.constant(1, 1024)
    sketch.node(LINEAR, x, weights, scales, 32, None, y)
    assert "writes %2:f32[1, 1024], which was written before" in refused(sketch, [small, x], y, target)


def test_a_graph_input_is_not_written() -> None:
    sketch = Sketch()
    x, y = sketch.tensor(3), sketch.tensor(3)
    sketch.node("aten.relu.default", x, y)
    assert "written before" in refused(sketch, [x, y], y, Target())


def test_an_update_may_write_again() -> None:
    sketch = Sketch()
    x, state = sketch.tensor(3), sketch.constant(3)
    sketch.node("aten.add.Tensor", state, x, 1, state)
    sketch.node("aten.add.Tensor", x, x, 1, x)
    sketch.node("aten.add.Tensor", state, x, 1, state)
    assert plan_at(sketch.prepare([x], [state])).launches


def test_what_a_prepack_made_may_be_written() -> None:
    """Twice too, but no second prepack may write it, nor any call before its prepack."""
    sketch = Sketch()
    x, start, state = sketch.tensor(3), sketch.constant(3), sketch.tensor(3)
    sketch.node("et_vk.prepack.default", start, state)
    sketch.node("aten.relu.default", x, state)
    sketch.node("aten.sigmoid.default", x, state)
    assert len(plan_at(sketch.prepare([x], [state])).launches) == 2
    sketch.node("et_vk.prepack.default", start, state)
    assert "writes %2:f32[3], which was written before" in refused(sketch, [x], state, Target())
    del sketch.nodes[0]
    assert "writes %2:f32[3], which was written before" in refused(sketch, [x], state, Target())


def test_where_the_first_content_of_a_state_is_read() -> None:
    """Exporters give layers their weights without a prepack: such a call reads the state, but what was there
    before a write is gone after it."""
    sketch = Sketch()
    x, start, state, out = (
        sketch.tensor(3, 8),
        sketch.constant(5, 8),
        sketch.tensor(5, 8),
        sketch.tensor(3, 5),
    )
    sketch.node("et_vk.prepack.default", start, state)
    sketch.node("aten.linear.default", x, start, None, out)
    sketch.node("aten.add.Tensor", state, state, 1, state)
    assert sketch.prepare([x], [out]).prepared.each[1].inputs == (x, state, None)
    sketch.node("aten.linear.default", x, start, None, sketch.tensor(3, 5))
    wanted = (
        r"node 3 .* reads the state %2:f32\[5, 8\] as it was before node 2 .* wrote it; .*`buffer.copy_\("
    )
    assert re.search(wanted, refused(sketch, [x], out, Target()))


def test_packed_weights_are_no_states() -> None:
    sketch = Sketch()
    x, mask, out = sketch.tensor(3, 8), sketch.tensor(4, 4, dtype=DType.U8), sketch.tensor(3, 4)
    start, weights = sketch.constant(4, 4, dtype=DType.U8), sketch.tensor(4, 4, dtype=DType.U8)
    sketch.node("et_vk.prepack.default", start, weights)
    sketch.node("et_vk.linear_q4gsw.default", x, start, sketch.constant(1, 4), 8, None, out)
    plan_at(sketch.prepare([x], [out]))
    sketch.node("aten.bitwise_or.Tensor", mask, weights, weights)
    wanted = (
        "must be a constant: its operator packs it once, at load; a buffer that the module writes must be"
    )
    assert wanted in refused(sketch, [x, mask], out, Target())


@ROUTES
def test_a_bias_that_is_too_short(target: Target) -> None:
    sketch = Sketch()
    x, out = q4(sketch, columns=1000, bias=sketch.constant(1))
    assert "bias must be [n], one value per row of weights" in refused(sketch, [x], out, target)


@ROUTES
@pytest.mark.parametrize("spare", [0, 1, 2])
def test_weights_padded_beyond_x(target: Target, spare: int) -> None:
    """The last word of a row may have columns that x lacks, and no word after it."""
    sketch = Sketch()
    x, out = sketch.tensor(33, 8), sketch.tensor(33, 64)
    weights, scales = sketch.constant(64, 4 * (1 + spare), dtype=DType.U8), sketch.constant(1, 64)
    sketch.node(LINEAR, x, weights, scales, 8, None, out)
    if spare:
        assert "rows of 4-bit weights must cover x's columns" in refused(sketch, [x], out, target)
    else:
        (launch,) = plan_at(sketch.prepare([x], [out], target)).launches
        assert not launch.module.bounds_checks


@ROUTES
def test_scales_that_are_too_few(target: Target) -> None:
    sketch = Sketch()
    x, out = q4(sketch, depth=64, group=32, groups=1)
    assert "scales must be [k / 32, n]" in refused(sketch, [x], out, target)


def constant(key: str, data: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Constant:
    dtype = DType.of(data.dtype)
    assert dtype is not None
    return Constant(key, dtype, data.shape, memoryview(data.tobytes()))


def test_constants_differ_by_more_than_their_key() -> None:
    four, eight = np.arange(4, dtype=np.int64), np.arange(4, dtype=np.int64).view(np.int32)
    assert constant("h", four) != constant("h", eight)  # equal bytes
    assert constant("h", eight) != constant("h", eight.reshape(2, 4))
    assert constant("h", eight) != constant("h", eight[:4])
    assert constant("h", eight) != constant("h", eight + 1)
    assert constant("h", eight) == constant("h", eight.copy())
    assert hash(constant("h", eight)) == hash(constant("h", eight.copy()))
    assert constant("h", eight) != constant("g", eight)


@ROUTES
def test_a_folded_view_hands_its_shape_on(target: Target) -> None:
    """A view of 4 elements that claims 1,000 in the file has 4 elements for the nodes that read it."""
    sketch = Sketch()
    claimed = sketch.tensor(1000)
    sketch.node("aten.view_copy.default", sketch.constant(4), (4,), claimed)
    x, out = q4(sketch, columns=1000, bias=claimed)
    assert "f32[4]" in refused(sketch, [x], out, target)


@ROUTES
def test_weights_are_packed_by_what_the_operand_says(target: Target) -> None:
    """Scales seen through a view: [4, 8] in the file, [8, 4] for the product."""
    sketch = Sketch()
    stored = np.arange(32, dtype=np.float32).reshape(4, 8)
    scales, seen = Tensor(100, DType.F32, (4, 8), constant("s", stored)), sketch.tensor(8, 4)
    sketch.node("aten.view_copy.default", scales, (8, 4), seen)
    x, out, weights = sketch.tensor(1, 64), sketch.tensor(1, 4), sketch.constant(4, 32, dtype=DType.U8)
    sketch.node(LINEAR, x, weights, seen, 8, None, out)
    (launch,) = plan_at(sketch.prepare([x], [out], target)).launches
    packed = [b for b in launch.buffers if isinstance(b, Weight) and b.layout == "scales by row"]
    np.testing.assert_array_equal(packed[0].pack().reshape(4, 8), stored.reshape(8, 4).T)


# What the verifier itself does ------------------------------------------------------------------


def operand(*shape: int, slot: int = 0) -> Operand:
    return Operand(Tensor(slot, DType.F32, shape), shape, Storage.F32, Slot(slot))


def test_memory_that_is_smaller_than_its_tensor() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(5), sketch.tensor(5)
    sketch.node("aten.relu.default", x, out)
    compiled = sketch.prepare([x], [out])
    check_memory("sketch", compiled.prepared.calls, compiled.placement, Target())
    short = replace(compiled.placement, slot_bytes=(20, 16))
    with pytest.raises(GraphError, match=r"node 0 .*: %1:f32\[5\] takes 20 bytes, its memory has 16"):
        check_memory("sketch", compiled.prepared.calls, short, Target())
    with pytest.raises(GraphError, match=r"%0:f32\[5\] takes 20 bytes, its memory has 16"):
        check_memory(
            "sketch", compiled.prepared.calls, replace(compiled.placement, slot_bytes=(16, 20)), Target()
        )


def test_a_view_that_claims_more_than_it_views_is_a_copy() -> None:
    sketch = Sketch()
    x, view, out = sketch.tensor(4), sketch.tensor(1000), sketch.tensor(1000)
    sketch.node("aten.view_copy.default", x, (4,), view)
    sketch.node("aten.relu.default", view, out)
    plan = plan_at(sketch.prepare([x], [out]))
    assert [launch.module.kernel.name for launch in plan.launches] == ["copy", "unary"]
    assert plan.shapes[out.id] == (4,)


def test_inputs_beyond_their_maximum() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(5), sketch.tensor(5)
    sketch.node("aten.relu.default", x, out)
    with pytest.raises(ShapeError, match=r"input %0:f32\[5\] cannot be \[6\]"):
        plan_at(sketch.prepare([x], [out]), {x: (6,)})


def product(columns: int, rows: AnyInt, out: Scratch | Operand) -> Dispatch:
    """A 4-bit product of four rows of x, or of fewer."""
    weights = Weight(
        constant("w", np.zeros((columns, 4), np.uint8)), (columns, 4), "words", (), columns, Storage.U32
    )
    scales = Weight(
        constant("s", np.zeros(columns, np.float32)), (columns,), "plain", ("f32",), columns, Storage.F32
    )
    made = kernel("q4_thread", QUADS=2, WORDS=1, PITCH=1, GROUP=1)
    return Dispatch(made, x=operand(4, 8), weights=weights, scales=scales, out=out, rows=rows,
                    columns=columns, threads=columns)  # fmt: skip


def test_an_unchecked_kernel_stays_within_what_it_states() -> None:
    dispatch = product(16, 1, operand(1, 16))
    module = compose(dispatch.kernel)
    assert not module.bounds_checks
    verify(dispatch, module, (1, 1, 1), Target())
    short = product(16, 1, operand(1, 15))
    with pytest.raises(RequirementError, match=r"reaches 16 elements of out, %0:f32\[1, 15\] has 15"):
        verify(short, module, (1, 1, 1), Target())
    with pytest.raises(RequirementError, match="reaches 16 elements of out, scratch memory has 7"):
        verify(product(16, 1, Scratch(7)), module, (1, 1, 1), Target())


def test_an_equal_launch_over_less_memory_is_checked_again() -> None:
    collector, node = Collector(Target()), Node(0, "product", ())
    collector.add(node, [product(16, 1, operand(1, 16))])
    with pytest.raises(RequirementError, match="reaches 16 elements of out"):
        collector.add(node, [product(16, 1, operand(1, 15))])


def test_a_loop_ends_before_the_adapter_ends_it() -> None:
    dispatch = product(16, 1, operand(1, 16))
    module = compose(dispatch.kernel)
    assert module.statements.loops is not None
    count = module.statements.loops.value(dispatch.parameters)
    assert count > 1
    for most in (0, count):  # 0: no limit
        verify(dispatch, module, (1, 1, 1), Target(loop_max=most))
    with pytest.raises(RequirementError, match=f"needs {count} iterations, the adapter ends loops after"):
        verify(dispatch, module, (1, 1, 1), Target(loop_max=count - 1))


def test_a_live_extent_leaves_a_guard() -> None:
    trace = Trace({0: 2})
    dispatch = product(16, trace.symbol(0), operand(5, 16))
    verify(dispatch, compose(dispatch.kernel), (1, 1, 1), Target())
    (guard,) = trace.guards()
    assert guard.high == 4


def test_a_kernel_that_does_not_state_all_extents_is_checked() -> None:
    assert compose(kernel("unary")).bounds_checks


# Foreign exceptions -----------------------------------------------------------------------------


def test_a_live_group_size_is_pinned() -> None:
    sketch = Sketch()
    p = sketch.symbol()
    x, out = q4(sketch, group=p)
    plan = plan_at(sketch.prepare([x, p], [out]), values={p: 32})
    assert plan.numbers({p.id: 32}) is not None
    assert plan.numbers({p.id: 16}) is None


def test_a_live_product_that_leaves_32_bits() -> None:
    sketch = Sketch()
    p, squared, out = sketch.symbol(), sketch.symbol(), sketch.tensor(4, dtype=DType.I32)
    sketch.node("mul", p, p, squared)
    sketch.node("aten.full.default", (4,), squared, None, None, None, None, out)
    compiled = sketch.prepare([p], [out])
    plan = plan_at(compiled, values={p: 3})
    assert plan.numbers({p.id: 46340}) is not None
    assert plan.numbers({p.id: 70000}) is None
    assert plan.numbers({p.id: 1 << 40}) is None  # not even in 64
    with pytest.raises(MisfitError, match="4900000000 does not fit i32"):
        plan_at(compiled, values={p: 70000})


@ROUTES
def test_elements_of_another_type(target: Target) -> None:
    """Sums of weights that a file declares as halves are half the memory that a kernel of integers reads."""
    sketch = Sketch()
    x, out = sketch.tensor(1, 32, dtype=DType.I8), sketch.tensor(1, 8, dtype=DType.I8)
    weights, sums = sketch.constant(8, 32, dtype=DType.I8), sketch.constant(8, dtype=DType.F16)
    arguments = x, 0.1, 0, weights, sums, sketch.constant(8), 0.1, 0, None, "none", out
    sketch.node("et_vk.q8ta_linear.default", *arguments)
    for shader_f16 in (False, True):
        message = refused(sketch, [x], out, replace(target, shader_f16=shader_f16))
        assert "takes weight_sums as i32" in message


# What a family's function did not foresee in a graph ---------------------------------------------


RELU = "aten.relu.default"


def graph() -> Graph:
    sketch = Sketch()
    x, out = sketch.tensor(2, 3), sketch.tensor(2, 3)
    sketch.node(RELU, x, out)
    return sketch.graph([x], [out])


@pytest.mark.parametrize("raised", [IndexError("short"), RecursionError()])
@pytest.mark.parametrize("function", ["shape", "compute"])
def test_an_operators_functions(monkeypatch: pytest.MonkeyPatch, raised: Exception, function: str) -> None:
    def fails(*_: Any) -> Any:
        raise raised

    changed: dict[str, Any] = {function: fails}
    monkeypatch.setitem(OPERATORS, RELU, replace(OPERATORS[RELU], takes_target=False, **changed))
    with pytest.raises(MisfitError, match=rf"node 0 aten\.relu\.default: {type(raised).__name__}") as caught:
        plan_at(Compiled(prepare(graph()), Target()))
    assert caught.value.is_certain
    assert caught.value.__cause__ is raised


def test_errors_name_live_integers_but_no_dims(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise IndexError("short")

    monkeypatch.setitem(OPERATORS, RELU, replace(OPERATORS[RELU], takes_target=False, compute=fails))
    compiled = Compiled(prepare(graph()), Target())
    for id, shown in ((dim_id(0, 1), False), (9, True)):
        with pytest.raises(MisfitError) as caught:
            compiled.plan(((2, 2),), {id: 2})
        assert ("live integer %9 is 2" in str(caught.value)) is shown
        assert "%-" not in str(caught.value)


def test_a_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> Any:
        raise IndexError("short")

    monkeypatch.setitem(REWRITES, "failing", fails)
    with pytest.raises(GraphError, match="rewrite failing does not understand its nodes: IndexError: short"):
        prepare(graph(), ["failing"])
