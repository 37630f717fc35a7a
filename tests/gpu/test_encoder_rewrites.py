"""Attention that a graph spells out, and what follows linear layers, become one call each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from small_graphs import Array, Drawing, operators, run_graph

from pteron.dtypes import DType
from pteron.families.linear import product
from pteron.gpu import Device
from pteron.graph import Graph, Tensor
from pteron.ops import Target
from pteron.ops.tiles import Tile

pytestmark = pytest.mark.kernels
ATTENTION, LINEAR = "pteron.attention_of_views", "pteron.linear"
BATCH, STEPS, HEADS, WIDTH = 2, 13, 3, 8
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


class Encoder(Drawing):
    """A graph of attention over [batch, steps, ...] inputs."""

    def permuted(self, x: Tensor, *dims: int) -> Tensor:
        return self.made("aten.permute_copy.default", x, list(dims), shape=[x.shape_max[dim] for dim in dims])

    def viewed(self, x: Tensor, *sizes: Any, shape: tuple[int, ...] | None = None) -> Tensor:
        return self.made("aten.view_copy.default", x, list(sizes), shape=shape or sizes)

    def selected(self, x: Tensor, dim: int, index: int) -> Tensor:
        shape = x.shape_max[:dim] + x.shape_max[dim + 1 :]
        return self.made("aten.select_copy.int", x, dim, index, shape=shape)

    def times(self, x: Tensor, number: float, name: str = "mul") -> Tensor:
        other = self.given(np.array(number, np.float32))
        return self.made(f"aten.{name}.Tensor", x, other, shape=x.shape_max)

    def heads(self, x: Tensor, steps: Any) -> Tensor:
        """[batch, steps, heads · width] as [batch, heads, steps, width]."""
        by_steps = self.viewed(x, BATCH, steps, HEADS, WIDTH, shape=(BATCH, STEPS, HEADS, WIDTH))
        return self.permuted(by_steps, 0, 2, 1, 3)

    def merged(self, x: Tensor) -> Tensor:
        """[batch, heads, ...] as [batch · heads, ...]: one of the other sizes may be live."""
        _, _, rows, columns = x.shape_max
        sizes = (BATCH * HEADS, -1, columns) if columns != STEPS else (BATCH * HEADS, rows, -1)
        return self.viewed(x, *sizes, shape=(BATCH * HEADS, rows, columns))

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return self.made("aten.bmm.default", a, b, shape=(*a.shape_max[:2], b.shape_max[2]))

    def plus(self, a: Tensor, b: Tensor) -> Tensor:
        return self.made("aten.add.Tensor", a, b, 1, shape=a.shape_max)

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        steps: Any,
        change: Callable[[Encoder, Tensor], Tensor] = lambda _, scores: scores,
        guard: str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(weights, result): of [batch, heads, steps, width] to [batch, steps, heads · width]."""
        scores = self.product(self.merged(q), self.merged(self.permuted(k, 0, 1, 3, 2)))
        apart = self.viewed(scores, BATCH, HEADS, steps, steps, shape=(BATCH, HEADS, STEPS, STEPS))
        changed = change(self, apart)
        weights = self.made("aten._softmax.default", changed, -1, False, shape=changed.shape_max)
        weights = self.guarded(changed, weights, guard) if guard else weights
        merged = self.viewed(weights, BATCH * HEADS, steps, steps, shape=(BATCH * HEADS, STEPS, STEPS))
        values = self.product(merged, self.merged(v))
        shape = (BATCH, HEADS, STEPS, WIDTH)
        by_steps = self.permuted(self.viewed(values, BATCH, HEADS, steps, WIDTH, shape=shape), 0, 2, 1, 3)
        row = HEADS * WIDTH
        return weights, self.viewed(by_steps, BATCH, steps, row, shape=(BATCH, STEPS, row))

    def guarded(self, scores: Tensor, weights: Tensor, by: str) -> Tensor:
        """Weights of zeros for queries whose scores are all -inf, as PyTorch's exporters write it."""
        rows = (*scores.shape_max[:3], 1)

        def truths(name: str, *arguments: Any, shape: tuple[int, ...]) -> Tensor:
            out = self.tensor(*shape, dtype=DType.BOOL)
            self.node(name, *arguments, out)
            return out

        if by == "amax":
            greatest = self.made("aten.amax.default", scores, [-1], True, shape=rows)
            nothing = truths("aten.eq.Scalar", greatest, -math.inf, shape=rows)
        else:
            hidden = truths("aten.eq.Scalar", scores, -math.inf, shape=scores.shape_max)
            seen = truths("aten.logical_not.default", hidden, shape=scores.shape_max)
            some = truths("aten.any.dim", seen, -1, True, shape=rows)
            nothing = truths("aten.logical_not.default", some, shape=rows)
        like = weights, 0, None, None, None, False, None
        zeros = self.made("aten.full_like.default", *like, shape=weights.shape_max)
        return self.made("aten.where.self", nothing, zeros, weights, shape=weights.shape_max)


def from_one(change: Callable[[Encoder, Tensor], Tensor], factor: float = 1.0, outputs: int = 1) -> Graph:
    """Queries, keys and values of one tensor, as timm and torchvision have them."""
    graph = Encoder()
    x = graph.input(BATCH, STEPS, 3 * HEADS * WIDTH)
    steps = graph.size(x, 1)
    shape = (BATCH, STEPS, 3, HEADS, WIDTH)
    all_three = graph.permuted(graph.viewed(x, BATCH, steps, 3, HEADS, WIDTH, shape=shape), 2, 0, 3, 1, 4)
    q, k, v = (graph.selected(all_three, 0, index) for index in (0, 1, -1))
    q = graph.times(q, factor) if factor != 1 else q
    weights, result = graph.attention(q, k, v, steps, change)
    return graph.ending(*(result, weights)[:outputs])


def from_three(change: Callable[[Encoder, Tensor], Tensor], factor: float = 1.0) -> Graph:
    """Queries, keys and values of their own, with a factor of both, as PyTorch decomposes attention."""
    graph = Encoder()
    inputs = [graph.input(BATCH, STEPS, HEADS * WIDTH) for _ in range(3)]
    steps = graph.size(inputs[0], 1)
    q, k, v = (graph.heads(x, steps) for x in inputs)
    _, result = graph.attention(graph.times(q, factor), graph.times(k, factor), v, steps, change)
    return graph.ending(result)


def expected(qkv: Sequence[Array], scale: float, mask: Array | float = 0.0) -> Array:
    """In float64, of queries, keys and values [batch, steps, heads, width]."""
    q, k, v = (each.astype(np.float64).transpose(0, 2, 1, 3) for each in qkv)
    scores = scale * q @ k.transpose(0, 1, 3, 2) + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result = weights / weights.sum(-1, keepdims=True) @ v
    made: Array = result.transpose(0, 2, 1, 3).reshape(*result.shape[::2], -1)
    return made


MASKS: dict[str, tuple[int, ...] | None] = {
    "none": None,
    "rows": (STEPS, STEPS),
    "batch": (BATCH, 1, 1, STEPS),
    "heads": (1, HEADS, STEPS, STEPS),
}


@pytest.mark.long(every=8)
@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("by", ["one", "three"])
def test_attention_is_one_call(masked: str, by: str, device: Device, target: Target) -> None:
    shape = MASKS[masked]
    mask = floats(*shape) if shape else None

    def change(graph: Encoder, scores: Tensor) -> Tensor:
        scores = graph.times(scores, 2.0, "div")
        return scores if mask is None else graph.plus(scores, graph.given(mask))

    graph = from_one(change, 0.7) if by == "one" else from_three(change, 0.7)
    scale = (0.7 if by == "one" else 0.7**2) / 2
    found = operators(graph)
    assert found.count(ATTENTION) == 1
    assert not {"aten.bmm.default", "aten._softmax.default", "aten.permute_copy.default"} & {*found}
    for steps in (STEPS, 1, 5) if mask is None else (STEPS,):
        qkv = floats(BATCH, steps, 3, HEADS, WIDTH)
        parts = [np.ascontiguousarray(qkv[:, :, each]) for each in range(3)]
        inputs = (
            [qkv.reshape(BATCH, steps, -1)] if by == "one" else [x.reshape(BATCH, steps, -1) for x in parts]
        )
        ((result,),) = run_graph(graph, ["attention"], [inputs], device, target)
        want = expected(parts, scale, 0.0 if mask is None else mask)
        np.testing.assert_allclose(result, want, atol=2e-6)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("guard", ["amax", "any"])
@pytest.mark.parametrize("steps", [STEPS, 3])
def test_queries_that_see_nothing(guard: str, steps: int, device: Device, target: Target) -> None:
    """Their results are zeros, in tiles and in splits of the context."""
    graph = Encoder()
    inputs = [graph.input(BATCH, STEPS, HEADS * WIDTH) for _ in range(3)]
    mask, live = graph.input(BATCH, 1, 1, STEPS), graph.size(inputs[0], 1)
    q, k, v = (graph.heads(x, live) for x in inputs)
    _, result = graph.attention(q, k, v, live, lambda graph, scores: graph.plus(scores, mask), guard)
    made = graph.ending(result)
    assert not {"aten.where.self", "aten.amax.default", "aten.any.dim"} & {*operators(made)}
    parts = [floats(BATCH, steps, HEADS, WIDTH) for _ in range(3)]
    hidden = np.zeros((BATCH, 1, 1, steps), np.float32)
    hidden[0] = -np.inf
    hidden[1, ..., 0] = -np.inf
    given = [*(x.reshape(BATCH, steps, -1) for x in parts), hidden]
    ((found,),) = run_graph(made, ["attention"], [given], device, target)
    want = expected([x[1:] for x in parts], 1.0, hidden[1:])
    np.testing.assert_allclose(found, np.concatenate([0 * want, want]), atol=2e-6)


def test_weights_that_are_read_elsewhere_are_computed(device: Device, target: Target) -> None:
    graph = from_one(lambda _, scores: scores, outputs=2)
    assert ATTENTION not in operators(graph)


def test_a_scaled_mask_is_left_alone() -> None:
    mask = floats(STEPS, STEPS)
    graph = from_one(lambda graph, scores: graph.times(graph.plus(scores, graph.given(mask)), 0.5))
    assert ATTENTION not in operators(graph)


@pytest.mark.parametrize("shape", [(BATCH, HEADS, STEPS * STEPS), (BATCH, HEADS * STEPS, STEPS, 1)])
def test_a_softmax_of_other_rows_is_left_alone(shape: tuple[int, ...]) -> None:
    graph = from_one(lambda graph, scores: graph.viewed(scores, *shape))
    assert ATTENTION not in operators(graph)


def test_a_mask_of_scores_with_more_dims_is_left_alone() -> None:
    """The first dim of this mask is not the batch, though it has its size."""

    def change(graph: Encoder, scores: Tensor) -> Tensor:
        viewed = graph.viewed(scores, HEADS, BATCH, 1, STEPS, STEPS)
        return graph.plus(viewed, graph.given(floats(BATCH, 1, STEPS, STEPS)))

    assert ATTENTION not in operators(from_one(change))


@pytest.mark.parametrize("is_permuted", [True, False])
def test_rows_that_are_not_aligned_are_copied(is_permuted: bool, device: Device, target: Target) -> None:
    """Heads of 6 and queries from the second element of a row on; results of three dims."""
    graph = Encoder()
    wide, steps, row = 1, 5, 2 * 3 * 6
    x = graph.input(wide, steps, row + 1)
    parts = []
    for first in (1, 13, 25):
        part = graph.made("aten.slice_copy.Tensor", x, 2, first, first + 12, 1, shape=(wide, steps, 12))
        parts.append(graph.permuted(graph.viewed(part, wide, steps, 2, 6), 0, 2, 1, 3))
    q, k, v = parts
    squeezed = graph.made("aten.squeeze_copy.dims", q, [0], shape=(2, steps, 6))
    scores = graph.product(squeezed, graph.viewed(graph.permuted(k, 0, 1, 3, 2), 2, 6, steps))
    weights = graph.made("aten._softmax.default", scores, 2, False, shape=(2, steps, steps))
    out = graph.product(weights, graph.viewed(v, 2, steps, 6))
    made = graph.ending(graph.permuted(out, 1, 0, 2) if is_permuted else out)
    assert [name for name in operators(made) if "view_copy" not in name] == [ATTENTION]
    given = floats(wide, steps, row + 1)
    ((result,),) = run_graph(made, ["attention"], [[given]], device, target)
    qkv = [given[:, :, first : first + 12].reshape(wide, steps, 2, 6) for first in (1, 13, 25)]
    want = expected(qkv, 1.0).reshape(steps, 2, 6)
    np.testing.assert_allclose(result, want if is_permuted else want.transpose(1, 0, 2), atol=2e-6)


def erf_gelu(x: Array) -> Array:
    made: Array = 0.5 * x * (1 + np.vectorize(math.erf)(x / 2**0.5))
    return made


ACTIVATIONS: dict[str, tuple[tuple[Any, ...], Callable[[Array], Array]]] = {
    "aten.relu.default": ((), lambda x: np.maximum(x, 0)),
    "aten.gelu.default": (("none",), erf_gelu),
    "aten.sigmoid.default": ((), lambda x: x / (1 + np.exp(-x))),  # times x: SiLU
}


@pytest.mark.long(every=5)
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(6, 12, 16), (4, 7, 5), (2, 3, 1)])
def test_what_follows_a_linear_layer(
    activation: str | None, rows: int, columns: int, depth: int, device: Device, target: Target
) -> None:
    """An activation or a residual's sum, behind a view with live sizes."""
    graph = Encoder()
    x, weight, bias = graph.input(BATCH, rows, depth), floats(columns, depth), floats(columns)
    live = graph.size(x, 1)
    flat = graph.viewed(x, -1, depth, shape=(BATCH * rows, depth))
    factors = flat, graph.given(weight), graph.given(bias)
    layer = graph.made("aten.linear.default", *factors, shape=(BATCH * rows, columns))
    apart = graph.viewed(layer, BATCH, live, columns, shape=(BATCH, rows, columns))
    if activation is None:
        out = graph.plus(graph.input(BATCH, rows, columns), apart)
    else:
        out = graph.made(activation, apart, *ACTIVATIONS[activation][0], shape=apart.shape_max)
        if "sigmoid" in activation:
            out = graph.made("aten.mul.Tensor", apart, out, shape=apart.shape_max)
    made = graph.ending(out)
    assert [name for name in operators(made) if "view" not in name][-1] == LINEAR
    for count in (rows, 1):
        given, residual = floats(BATCH, count, depth), floats(BATCH, count, columns)
        inputs = [given, residual] if activation is None else [given]
        used = ["silu", "linear_activation", "dense_add"]
        ((result,),) = run_graph(made, used, [inputs], device, target)
        plain = given.astype(np.float64) @ weight.astype(np.float64).T + bias
        want = plain + residual if activation is None else ACTIVATIONS[activation][1](plain)
        np.testing.assert_allclose(result, want, atol=2e-6)


@pytest.mark.long(every=5)
@pytest.mark.parametrize("widths", [(8, 4, 12), (5, 7, 2), (16, 12), (3, 6)])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_several_layers_of_one_tensor(
    widths: tuple[int, ...],
    has_bias: bool,
    parts: int,
    device: Device,
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(product, "choose", lambda *_, **__: (Tile(4, 4, 4, 16), parts))
    graph = Encoder()
    x, depth = graph.input(1, 37, 52), 52
    weights, biases = [floats(width, depth) for width in widths], [floats(width) for width in widths]
    outputs = []
    for weight, bias in zip(weights, biases, strict=True):
        flat = graph.viewed(x, -1, depth, shape=(37, depth))  # views of each, as exporters write it
        factors = flat, graph.given(weight), graph.given(bias) if has_bias else None
        layer = graph.made("aten.linear.default", *factors, shape=(37, len(bias)))
        outputs.append(graph.viewed(layer, 1, -1, len(bias), shape=(1, 37, len(bias))))
    made = graph.ending(*outputs)
    assert [name for name in operators(made) if "view_copy" not in name] == ["pteron.linear_several"]
    for rows in (37, 1, 5):
        given = floats(1, rows, depth)
        (results,) = run_graph(made, ["dense_several"], [[given]], device, target)
        for result, weight, bias in zip(results, weights, biases, strict=True):
            want = given.astype(np.float64) @ weight.T + (bias if has_bias else 0)
            np.testing.assert_allclose(result, want, atol=5e-6)


def test_layers_of_a_tensor_that_changes_stay_apart() -> None:
    graph = Encoder()
    x, layers = graph.input(3, 5), []
    for _ in range(2):
        flat = graph.viewed(x, -1, 5, shape=(3, 5))
        layers.append(graph.made("aten.linear.default", flat, graph.given(floats(4, 5)), None, shape=(3, 4)))
        graph.node("aten.add.Tensor", x, x, 1, x)
    assert "pteron.linear_several" not in operators(graph.ending(*layers))


def test_a_residual_that_is_broadcast_at_a_call(device: Device, target: Target) -> None:
    graph = Encoder()
    x, residual, weight = graph.input(3, 5), graph.input(3, 4), floats(4, 5)
    layer = graph.made("aten.linear.default", x, graph.given(weight), None, shape=(3, 4))
    made = graph.ending(graph.plus(layer, residual))
    for rows, others in ((3, 1), (1, 3)):
        inputs = [floats(rows, 5), floats(others, 4)]
        ((result,),) = run_graph(made, ["dense_add"], [inputs], device, target)
        np.testing.assert_allclose(result, inputs[0] @ weight.T + inputs[1], atol=2e-6)
