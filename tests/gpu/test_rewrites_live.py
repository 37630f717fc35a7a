"""Rewrites look at the largest shapes, calls bring others: sizes of 1 that broadcast, no rows at all. What a
graph gives at any of them is the same with all rewrites and with none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bits import assert_same_bits
from join_cases import Layers
from small_graphs import Array, operators, run_graph

from pteron.dtypes import DType
from pteron.gpu import Device
from pteron.graph import Graph, Node, Tensor
from pteron.ops import Target
from pteron.ops.rewrite import REWRITES

pytestmark = pytest.mark.kernels

ROWS, DEPTH, COLUMNS = 7, 64, 12
ADD, VIEW = "aten.add.Tensor", "aten.view_copy.default"
TO_COPY = "dim_order_ops._to_dim_order_copy.default"
Product = Callable[[Layers, Tensor, int], Tensor]
random = np.random.default_rng(0)


def live(*shapes: Sequence[int]) -> list[Array]:
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


# Live sizes of (product, addend): equal, one of them 1 and repeated along the other, none.
PAIRS = [(ROWS, ROWS), (ROWS, 1), (1, ROWS), (1, 1), (3, 3), (1, 3), (3, 1), (0, 1), (1, 0), (0, 0)]


def sum_after(
    make: Product,
    *,
    ones: tuple[int, int] = (1, 1),
    by_view: bool = False,
    addend_first: bool = False,
) -> Any:
    """A product plus a tensor; `ones` is their number of leading dims of size 1."""

    def drawn() -> tuple[Graph, list[list[Array]]]:
        drawing = Layers()
        of_x, of_sum = ((1,) * count for count in ones)
        x, addend = drawing.input(*of_x, ROWS, DEPTH), drawing.input(*of_sum, ROWS, COLUMNS)
        made = make(drawing, x, COLUMNS)
        if by_view:
            sizes = [*of_sum, drawing.size(x, len(of_x)), COLUMNS]
            made = drawing.made(VIEW, made, sizes, shape=addend.shape_max)
        terms = (addend, made) if addend_first else (made, addend)
        total = drawing.made(ADD, *terms, 1, shape=addend.shape_max)
        return drawing.ending(total), [live((*of_x, a, DEPTH), (*of_sum, b, COLUMNS)) for a, b in PAIRS]

    return drawn


def batched_sum() -> tuple[Graph, list[list[Array]]]:
    """Steps and batches each of size 1 in one of the terms."""
    drawing = Layers()
    x, addend = drawing.input(3, ROWS, DEPTH), drawing.input(3, ROWS, COLUMNS)
    made = drawing.product(x, COLUMNS)
    total = drawing.made(ADD, made, addend, 1, shape=made.shape_max)
    sizes = [((3, 1), (1, 5)), ((1, 5), (3, 1)), ((3, 5), (3, 5)), ((1, 1), (2, 4)), ((2, 4), (1, 1))]
    return drawing.ending(total), [live((*a, DEPTH), (*b, COLUMNS)) for a, b in sizes]


def seen_otherwise() -> tuple[Graph, list[list[Array]]]:
    """A view that keeps the largest shape, and at a call shows rows of one batch as those of two."""
    drawing = Layers()
    x, like = drawing.input(2, 4, DEPTH), drawing.input(2, 4, COLUMNS)
    made = drawing.product(x, COLUMNS)
    shape = [drawing.size(like, 0), drawing.size(like, 1), COLUMNS]
    made = drawing.made(VIEW, made, shape, shape=made.shape_max)
    total = drawing.made(ADD, made, like, 1, shape=made.shape_max)
    sizes = [((1, 4), (2, 2)), ((2, 2), (1, 4)), ((2, 4), (2, 4))]
    return drawing.ending(total), [live((*a, DEPTH), (*b, COLUMNS)) for a, b in sizes]


def gate_alone() -> tuple[Graph, list[list[Array]]]:
    drawing = Layers()
    x, y = drawing.input(1, ROWS, 5), drawing.input(1, ROWS, 5)
    calls = [live((1, a, 5), (1, b, 5)) for a, b in PAIRS] + [live((1, 3, 1), (1, 1, 5))]
    return drawing.ending(drawing.gate(x, y)), calls


def feed_forward(by_view: bool, normed: bool, make: Product = Layers.product) -> Any:
    """A norm, two products, a gate, a third product, a sum."""

    def drawn() -> tuple[Graph, list[list[Array]]]:
        drawing = Layers()
        x, addend = drawing.input(1, ROWS, DEPTH), drawing.input(1, ROWS, COLUMNS)
        within = x
        if normed:
            gain = drawing.given(random.uniform(0.5, 2, DEPTH).astype(np.float32))
            within = drawing.made("et_vk.rms_norm.default", x, gain, 1e-5, shape=x.shape_max)
        halves = [make(drawing, within, 32) for _ in range(2)]
        if by_view:
            size = drawing.size(x, 1)
            halves = [drawing.made(VIEW, half, [1, size, 32], shape=half.shape_max) for half in halves]
        made = make(drawing, drawing.gate(*halves), COLUMNS)
        total = drawing.made(ADD, made, addend, 1, shape=made.shape_max)
        return drawing.ending(total), [live((1, a, DEPTH), (1, b, COLUMNS)) for a, b in PAIRS if a]

    return drawn


def shared_int8() -> tuple[Graph, list[list[Array]]]:
    drawing = Layers()
    x = drawing.input(1, ROWS, DEPTH)
    outputs = [drawing.int8_product(x, COLUMNS) for _ in range(2)]
    return drawing.ending(*outputs), [live((1, rows, DEPTH)) for rows in (ROWS, 1, 3)]


def heads_of_rows() -> tuple[Graph, list[list[Array]]]:
    """Three products of the rows of a norm, seen as heads at once."""
    drawing = Layers()
    x = drawing.input(1, ROWS, DEPTH)
    normed, steps = drawing.norm(x), drawing.size(x, 1)
    made = [drawing.flat_product(normed, 24) for _ in range(3)]
    seen = [drawing.made(VIEW, each, [1, steps, 3, 8], shape=(1, ROWS, 3, 8)) for each in made]
    return drawing.ending(*seen), [live((1, rows, DEPTH)) for rows in (ROWS, 1, 3)]


def silu(drawing: Layers, x: Tensor) -> Tensor:
    sigmoid = drawing.made("aten.sigmoid.default", x, shape=x.shape_max)
    return drawing.made("aten.mul.Tensor", sigmoid, x, shape=x.shape_max)


def silu_alone() -> tuple[Graph, list[list[Array]]]:
    drawing = Layers()
    x = drawing.input(ROWS, 7)
    return drawing.ending(silu(drawing, x)), [live((rows, 7)) for rows in (ROWS, 1)]


def hardsigmoid(
    drawing: Layers,
    x: Tensor,
    shift: float = 3.0,
    over: float = 6.0,
    *,
    whole: bool = False,
    dtype: type = np.float32,
) -> Tensor:
    """min(max(x + 3, 0), 6) / 6, its bounds in one call or in two, its numbers perhaps of another type."""
    three, six = (drawing.given(np.array(number, dtype)) for number in (shift, over))
    if dtype is not np.float32:
        three, six = (drawing.made(TO_COPY, number, *[None] * 6, shape=()) for number in (three, six))
    x = drawing.made(ADD, x, three, 1, shape=x.shape_max)
    if whole:
        x = drawing.made("aten.hardtanh.default", x, 0.0, 6.0, shape=x.shape_max)
    else:
        x = drawing.made("aten.clamp.default", x, 0.0, None, shape=x.shape_max)
        x = drawing.made("aten.clamp.default", x, None, 6, shape=x.shape_max)
    return drawing.made("aten.div.Tensor", x, six, shape=x.shape_max)


def hardsigmoid_alone(**form: Any) -> Any:
    def drawn() -> tuple[Graph, list[list[Array]]]:
        drawing = Layers()
        made = hardsigmoid(drawing, drawing.input(ROWS, 7), **form)
        return drawing.ending(made), [live((rows, 7)) for rows in (ROWS, 1)]

    return drawn


def between_casts(activation: Callable[[Layers, Tensor], Tensor]) -> tuple[Graph, list[list[Array]]]:
    """An activation of f16, computed in f32."""
    drawing = Layers()
    x = drawing.input(ROWS, 7)
    for dtype, make in ((DType.F16, None), (DType.F32, activation), (DType.F16, None), (DType.F32, None)):
        drawing.dtype = dtype
        x = drawing.made(TO_COPY, x, *[None] * 6, shape=x.shape_max)
        x = make(drawing, x) if make else x
    return drawing.ending(x), [live((rows, 7)) for rows in (ROWS, 1)]


CONVOLVED = [
    "aten.relu.default",
    "aten.gelu.default",
    "aten.hardswish.default",
    "aten.sigmoid.default",
    "hardsigmoid",
    "silu",
    None,
]
# Live shapes of (image, addend), whose sum may be larger than either.
IMAGES = [
    ((2, 3, 5, 5), (2, 6, 5, 5)),
    ((2, 3, 5, 5), (1, 6, 1, 1)),
    ((1, 3, 1, 5), (2, 6, 4, 1)),
    ((1, 3, 1, 1), (2, 6, 5, 5)),
    ((2, 3, 1, 4), (2, 1, 3, 4)),
    ((2, 3, 4, 4), (1, 6, 4, 4)),
]


def convolution(following: str | None) -> Any:
    def drawn() -> tuple[Graph, list[list[Array]]]:
        drawing = Layers()
        x, addend = drawing.input(2, 3, 5, 5), drawing.input(2, 6, 5, 5)
        weight = drawing.given(random.normal(size=(6, 3, 3, 3)).astype(np.float32))
        window = [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        made = drawing.made("aten.convolution.default", x, weight, None, *window, shape=(2, 6, 5, 5))
        made = drawing.made(ADD, made, addend, 1, shape=(2, 6, 5, 5))
        if following == "silu":
            made = silu(drawing, made)
        elif following == "hardsigmoid":
            made = hardsigmoid(drawing, made)
        elif following == "aten.gelu.default":
            made = drawing.made(following, made, "tanh", shape=(2, 6, 5, 5))
        elif following:
            made = drawing.made(following, made, shape=(2, 6, 5, 5))
        return drawing.ending(made), [live(*shapes) for shapes in IMAGES]

    return drawn


def padded_convolution(
    pad: Sequence[int], value: float = 0.0, *, transposed: bool = False, dims: int = 2
) -> Any:
    """Padding, a convolution with padding of its own, a sum, SiLU."""

    def drawn() -> tuple[Graph, list[list[Array]]]:
        drawing = Layers()
        borders = [*pad, *[0] * (2 * dims - len(pad))]
        x = drawing.input(2, 4, *[7, 9][:dims])
        sizes = [
            size + borders[-2 - 2 * dim] + borders[-1 - 2 * dim] for dim, size in enumerate(x.shape_max[2:])
        ]
        wider = drawing.made("aten.constant_pad_nd.default", x, list(pad), value, shape=(2, 4, *sizes))
        weight = drawing.given(random.normal(size=(4, 4, *[3] * dims)).astype(np.float32))
        rest = [1] * dims, [1] * dims, [1] * dims, transposed, [0] * dims, 1
        made = drawing.made("aten.convolution.default", wider, weight, None, *rest, shape=(2, 4, *sizes))
        return drawing.ending(silu(drawing, made)), [live(x.shape_max), live((1, 4, *[4, 6][:dims]))]

    return drawn


def excited_convolution(*sizes: int, images_first: bool = True) -> Any:
    """Images times numbers of their planes, padding, a convolution, SiLU."""

    def drawn() -> tuple[Graph, list[list[Array]]]:
        drawing = Layers()
        dims, ones = len(sizes), [1] * len(sizes)
        x, factors = drawing.input(2, 12, *sizes), drawing.input(2, 12, *ones)
        given = (x, factors) if images_first else (factors, x)
        product = drawing.made("aten.mul.Tensor", *given, shape=x.shape_max)
        wider = tuple(size + 2 for size in sizes)
        pad = drawing.made("aten.constant_pad_nd.default", product, [1, 1] * dims, 0.0, shape=(2, 12, *wider))
        weight = drawing.given(random.normal(size=(10, 12, *[3] * dims)).astype(np.float32))
        rest = ones, [0] * dims, ones, False, [0] * dims, 1
        made = drawing.made("aten.convolution.default", pad, weight, None, *rest, shape=(2, 10, *sizes))
        fewer = tuple(size - 2 for size in sizes)
        calls = [((2, 12, *sizes), (2, 12, *ones)), ((1, 12, *fewer), (1, 12, *ones))]
        calls += [((2, 12, *fewer), (1, 12, *ones)), ((1, 12, *fewer), (2, 12, *ones))]
        return drawing.ending(silu(drawing, made)), [live(*shapes) for shapes in calls]

    return drawn


def crossed_bounds() -> tuple[Graph, list[list[Array]]]:
    drawing = Layers()
    x = drawing.input(1, 1, 4, 4)
    weight = drawing.given(np.ones((1, 1, 1, 1), np.float32))
    window = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    made = drawing.made("aten.convolution.default", x, weight, None, *window, shape=(1, 1, 4, 4))
    made = drawing.made("aten.hardtanh.default", made, 0.5, -0.5, shape=(1, 1, 4, 4))
    return drawing.ending(made), [live((1, 1, 4, 4))]


def turned(cosine_rows: int, sine_rows: int, start: int, end: int) -> Any:
    """Queries and keys turned by rows of two tables, which may be of other lengths."""

    def drawn() -> tuple[Graph, list[list[Array]]]:
        drawing = Layers()
        q, k = drawing.input(1, ROWS, 4, 8), drawing.input(1, ROWS, 2, 8)
        tables = [
            drawing.given(random.normal(size=(rows, 4)).astype(np.float32))
            for rows in (cosine_rows, sine_rows)
        ]
        rows = [
            drawing.made("aten.slice_copy.Tensor", table, 0, start, end, 1, shape=(ROWS, 4))
            for table in tables
        ]
        shapes = [q.shape_max, k.shape_max]
        both = drawing.several("et_vk.apply_rotary_emb.default", q, k, *rows, shapes=shapes)
        return drawing.ending(*both), [live((1, ROWS, 4, 8), (1, ROWS, 2, 8))]

    return drawn


def tables_of_a_call() -> tuple[Graph, list[list[Array]]]:
    """Tables that are inputs, of the same largest shape and of other lengths at a call."""
    drawing = Layers()
    q, k = drawing.input(1, ROWS, 4, 8), drawing.input(1, ROWS, 2, 8)
    tables = drawing.input(20, 4), drawing.input(20, 4)
    rows = [
        drawing.made("aten.slice_copy.Tensor", table, 0, 2, 2 + ROWS, 1, shape=(ROWS, 4)) for table in tables
    ]
    both = drawing.several("et_vk.apply_rotary_emb.default", q, k, *rows, shapes=[q.shape_max, k.shape_max])
    sizes = [(20, 20), (20, 12), (9, 20)]
    return drawing.ending(*both), [live((1, ROWS, 4, 8), (1, ROWS, 2, 8), (a, 4), (b, 4)) for a, b in sizes]


def attention_layer(
    batch: int = 1, *, flat: bool = False, ones: int = 0, make: Product = Layers.product
) -> Any:
    """Q, K and V products, RoPE and attention over caches, the output product and a sum. `flat` merges the
    rows into one dim; `ones` is the number of leading dims of size 1."""

    def drawn() -> tuple[Graph, list[list[Array]]]:
        heads, width, capacity = 4, 16, 32
        rows_max = (batch * ROWS,) if flat else (batch, ROWS)
        drawing = Layers()
        x, addend = drawing.input(batch, ROWS, DEPTH), drawing.input(*[1] * ones, *rows_max, COLUMNS)
        steps, seen = drawing.size(x, 1), (batch, ROWS, heads, width)
        made = [make(drawing, x, heads * width) for _ in range(3)]
        q, k, v = (drawing.made(VIEW, one, [batch, steps, heads, width], shape=seen) for one in made)
        tables = [drawing.given(random.normal(size=(capacity, width)).astype(np.float32)) for _ in range(2)]
        turned = drawing.several("et_vk.apply_rotary_emb_hf.default", q, k, *tables, 0, shapes=[seen, seen])
        caches = [drawing.given(np.zeros((batch, capacity, heads, width), np.float32)) for _ in range(2)]
        rest = *caches, 0, 1, None, 0.0, True, None
        given = drawing.made("sdpa_with_kv_cache.default", *turned, v, *rest, shape=seen)
        rows = [-1] if flat else [batch, steps]
        joined = drawing.made(VIEW, given, [*rows, heads * width], shape=(*rows_max, heads * width))
        last = make(drawing, joined, COLUMNS)
        if ones:
            last = drawing.made(VIEW, last, [*[1] * ones, *rows, COLUMNS], shape=addend.shape_max)
        total = drawing.made(ADD, addend, last, 1, shape=last.shape_max)
        sizes = [
            (a, [*[1] * ones, batch * b] if flat else [*[1] * ones, batch, b])
            for a, b in PAIRS
            if a and (a == b or batch == 1)
        ]
        return drawing.ending(total), [live((batch, a, DEPTH), (*b, COLUMNS)) for a, b in sizes]

    return drawn


# What draws a graph and its calls, and how an operator that a rewrite makes of it begins; None: none may.
CASES: dict[str, tuple[Callable[[], tuple[Graph, list[list[Array]]]], str | None]] = {
    "a product plus a tensor": (sum_after(Layers.product), "pteron.linear_q4"),
    "a tensor plus a product": (sum_after(Layers.product, addend_first=True), "pteron.linear_q4"),
    "a product by a view": (sum_after(Layers.product, by_view=True), "pteron.linear_q4"),
    "a product with a dim more": (sum_after(Layers.product, ones=(1, 0), by_view=True), "pteron.linear_q4"),
    "a product with a dim less": (sum_after(Layers.product, ones=(0, 2), by_view=True), "pteron.linear_q4"),
    "a product of int8": (sum_after(Layers.int8_product), "pteron.linear_dq8ca_q4"),
    "a product of int8 by a view": (
        sum_after(Layers.int8_product, ones=(0, 1), by_view=True, addend_first=True),
        "pteron.linear_dq8ca_q4",
    ),
    "a product of batches": (batched_sum, "pteron.linear_q4"),
    "a product seen otherwise": (seen_otherwise, None),
    "a gate": (gate_alone, "pteron.silu_mul"),
    "a layer": (feed_forward(False, False), "pteron.linear_q4"),
    "a layer by views": (feed_forward(True, True), "pteron.linear_q4"),
    "a layer of attention": (attention_layer(), "pteron.attention_q4"),
    "attention of batches": (attention_layer(2), "pteron.attention_q4"),
    "attention of batches, a dim more": (attention_layer(2, ones=1), "pteron.attention_q4"),
    "attention of rows": (attention_layer(flat=True), "pteron.attention_q4"),
    "attention of batches as rows": (attention_layer(2, flat=True), "pteron.attention_q4"),
    "attention of batches as rows, a dim more": (
        attention_layer(2, flat=True, ones=1),
        "pteron.attention_q4",
    ),
    "a product of bytes": (sum_after(Layers.byte_product), "pteron.linear_q4"),
    "a product of byte rows": (sum_after(Layers.row_product), "pteron.linear_q4"),
    "a layer of bytes": (feed_forward(True, True, Layers.byte_product), "pteron.linear_q4"),
    "a layer of byte rows": (feed_forward(False, True, Layers.row_product), "pteron.linear_q4"),
    "attention of bytes": (attention_layer(make=Layers.byte_product), "pteron.attention_q4"),
    "attention of byte rows": (attention_layer(make=Layers.row_product), "pteron.attention_q4"),
    "attention of batches of bytes": (attention_layer(2, make=Layers.byte_product), "pteron.attention_q4"),
    "heads of byte rows": (heads_of_rows, "pteron.linear_q4"),
    "products of one int8": (shared_int8, ""),
    "a layer of int8": (feed_forward(False, False, Layers.int8_product), "pteron.linear_dq8ca_q4"),
    "a layer of int8 by views": (feed_forward(True, False, Layers.int8_product), "pteron.linear_dq8ca_q4"),
    "attention of int8": (attention_layer(make=Layers.int8_product), "pteron.attention_q4"),
    "attention of int8 batches": (attention_layer(2, make=Layers.int8_product), "pteron.attention_q4"),
    "attention of int8 rows": (attention_layer(flat=True, make=Layers.int8_product), "pteron.attention_q4"),
    **{f"a convolution, {name}": (convolution(name), "pteron.convolution") for name in CONVOLVED},
    "padding, a convolution": (padded_convolution([0, 1, 2, 0]), "pteron.convolution"),
    "padding of columns, a convolution": (padded_convolution([3, 1]), "pteron.convolution"),
    "padding, a convolution of one dim": (padded_convolution([1, 4], dims=1), "pteron.convolution"),
    "factors, a convolution": (excited_convolution(5, 7), "pteron.convolution"),
    "factors first, a convolution of one dim": (
        excited_convolution(9, images_first=False),
        "pteron.convolution",
    ),
    "SiLU": (silu_alone, "pteron.silu"),
    "hardsigmoid": (hardsigmoid_alone(), "pteron.hardsigmoid"),
    "hardsigmoid by relu6": (hardsigmoid_alone(whole=True), "pteron.hardsigmoid"),
    "hardsigmoid of integers": (hardsigmoid_alone(dtype=np.int32), "pteron.hardsigmoid"),
    "bounds that cross": (crossed_bounds, None),
    "tables alike": (turned(20, 20, 3, 3 + ROWS), "pteron.rope_slice"),
    "a longer table": (turned(20, 30, 3, 3 + ROWS), None),
    "a shorter table": (turned(20, 12, -9, -9 + ROWS), None),
    "tables of a call": (tables_of_a_call, None),
}


BYTES = [name for name in CASES if "byte" in name]


def test_a_constant_that_a_call_changes(device: Device) -> None:
    """Is not taken for the number that it begins with."""
    drawing = Layers()
    x, one = drawing.input(ROWS, 7), drawing.given(np.array(1, np.float32))
    graph = drawing.ending(hardsigmoid(drawing, x, whole=True))
    three = next(value for value in graph.nodes[0].args if getattr(value, "constant", None))
    graph = replace(graph, nodes=(*graph.nodes, Node(len(graph.nodes), ADD, (three, one, 1, three))))
    assert operators(graph, list(REWRITES)) == operators(graph, [])
    calls = [live((ROWS, 7))] * 2
    with_all = run_graph(graph, list(REWRITES), calls, device, device.target)
    with_none = run_graph(graph, [], calls, device, device.target)
    assert_same_bits(with_all[1][0], with_none[1][0], device)
    assert not np.array_equal(with_all[0][0], with_all[1][0])


@pytest.mark.parametrize("form", [{"shift": 2.0}, {"over": 5.0}], ids=str)
def test_nearly_a_hardsigmoid(form: dict[str, float]) -> None:
    graph, _ = hardsigmoid_alone(**form)()
    assert operators(graph, list(REWRITES)) == operators(graph, [])


@pytest.mark.parametrize("activation", [silu, hardsigmoid])
def test_activations_between_casts(activation: Any, device: Device, target: Target) -> None:
    graph, calls = between_casts(activation)
    assert operators(graph, list(REWRITES)) == [TO_COPY, f"pteron.{activation.__name__}", TO_COPY]
    with_all = run_graph(graph, list(REWRITES), calls, device, target)
    with_none = run_graph(graph, [], calls, device, target)
    for (of_all,), (of_none,) in zip(with_all, with_none, strict=True):
        np.testing.assert_allclose(of_all, of_none, rtol=1e-3)  # a step of f16


def test_what_follows_an_activated_convolution(device: Device, target: Target) -> None:
    """A convolution takes one activation with it, though rewrites look at it again for another one."""
    drawing, plane = Layers(), (2, 5, 4, 4)
    x = drawing.input(2, 3, 4, 4)
    window = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    weights = [drawing.given(random.normal(size=(5, 3, 1, 1)).astype(np.float32)) for _ in range(2)]
    made = [
        drawing.made("aten.convolution.default", x, weight, None, *window, shape=plane) for weight in weights
    ]
    first, other = (drawing.made("aten.sigmoid.default", each, shape=plane) for each in made)
    graph = drawing.ending(drawing.made("aten.sigmoid.default", first, shape=plane), other)
    calls = [live((2, 3, 4, 4))]
    found = [run_graph(graph, names, calls, device, target)[0] for names in (list(REWRITES), [])]
    for with_all, with_none in zip(*found, strict=True):
        np.testing.assert_allclose(with_all, with_none, atol=2e-6, rtol=2e-6)


NOT_PADDING = {
    "cropping": padded_convolution([-1, 1, 0, 0]),
    "ones": padded_convolution([1, 1, 1, 1], 1.0),
    "a transposed convolution": padded_convolution([1, 1, 0, 0], transposed=True),
    "channels": padded_convolution([0, 0, 0, 0, 0, 0]),
}


@pytest.mark.parametrize("name", NOT_PADDING)
def test_what_is_not_padding_of_a_convolution(name: str) -> None:
    graph, _ = NOT_PADDING[name]()
    assert "aten.constant_pad_nd.default" in operators(graph, list(REWRITES))


def test_padding_that_differs_at_both_ends(device: Device) -> None:
    graph, calls = padded_convolution([0, 1, 2, 0])()
    found, expected = (run_graph(graph, on, calls, device, device.target) for on in (list(REWRITES), []))
    for (of_all,), (of_none,) in zip(found, expected, strict=True):
        np.testing.assert_allclose(of_all, of_none, atol=5e-5, rtol=5e-5)


@pytest.mark.long(every=31)
@pytest.mark.parametrize("name", CASES)
def test_with_all_and_with_none(name: str, device: Device, target: Target) -> None:
    draw, made = CASES[name]
    graph, calls = draw()
    rewritten, plain = operators(graph, list(REWRITES)), operators(graph, [])
    if made is None:
        assert rewritten == plain
    else:
        assert len(rewritten) < len(plain)
        assert any(name.startswith(made) for name in rewritten)
    with_all = run_graph(graph, list(REWRITES), calls, device, target)
    with_none = run_graph(graph, [], calls, device, target)
    for a, b in zip(with_all, with_none, strict=True):
        for of_all, of_none in zip(a, b, strict=True):
            assert of_all.shape == of_none.shape
            np.testing.assert_allclose(of_all, of_none, atol=2e-6, rtol=2e-6)


@pytest.mark.long(every=12)
@pytest.mark.parametrize(
    "name", ["a product plus a tensor", "a layer by views", "a layer of attention", *BYTES]
)
def test_by_subgroups(name: str, device: Device, few: Target) -> None:
    for of_all, of_none in both_by_subgroups(name, device, few):
        np.testing.assert_allclose(of_all, of_none, atol=5e-6, rtol=5e-6)


@pytest.mark.long(every=9)
@pytest.mark.parametrize("name", [name for name in CASES if "int8" in name])
def test_int8_is_the_same_by_subgroups(name: str, device: Device, few: Target) -> None:
    """Both kernels round a value between two int8 steps in the same direction: a difference would show in
    the third digit. Float sums may differ in the last digit."""
    for of_all, of_none in both_by_subgroups(name, device, few):
        np.testing.assert_allclose(of_all, of_none, atol=1e-6, rtol=1e-6)


def both_by_subgroups(name: str, device: Device, few: Target) -> Iterator[tuple[Array, Array]]:
    """What a graph gives with all rewrites, and with none."""
    graph, calls = CASES[name][0]()
    target = replace(few, invocations_max=64)  # attention is in splits at once
    with_all, with_none = (run_graph(graph, names, calls, device, target) for names in (list(REWRITES), []))
    for all_outputs, none_outputs in zip(with_all, with_none, strict=True):
        for of_all, of_none in zip(all_outputs, none_outputs, strict=True):
            assert of_all.shape == of_none.shape
            yield of_all, of_none
