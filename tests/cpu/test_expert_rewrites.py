"""The layer of a mixture of experts: which calls become one, and its launches in a decode step."""

from __future__ import annotations

import pytest
from fused_layer import ADD, GPU, LINEAR, NORM, Layer
from sketch import plan_at

from pteron.dtypes import DType
from pteron.graph import Tensor

pytestmark = pytest.mark.rewrites

PRODUCT, GATED = "pteron.experts_q4gsw.default", "pteron.experts_gated_q4"
MLP, COMBINE = "pteron.experts_mlp_q4", "pteron.combine.default"


class ExpertsLayer(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.normed = self.norm(self.x)
        self.x, self.given = self.view(self.normed, 3, 64), self.x
        self.weights, self.chosen = self.tensor(3, 2), self.tensor(3, 2, dtype=DType.I32)
        route = (self.constant(8, 64), 2, "softmax", None, 1, 1, 1, True, 1.0)
        logits = self.tensor(3, 8)
        self.node("aten.linear.default", self.x, route[0], None, logits)
        self.node("pteron.route.default", logits, *route[1:], self.list(self.weights, self.chosen))

    def expert(self, x: Tensor, rows: int, chosen: Tensor | None = None) -> Tensor:
        depth, out = x.shape_max[-1], self.tensor(3, 2, rows)
        weights = self.constant(8 * rows, depth // 2, dtype=DType.U8)
        scales = self.constant(depth // 32, 8 * rows)
        self.node(PRODUCT, x, chosen or self.chosen, weights, scales, 32, 8, out)
        return out


def test_a_layer() -> None:
    layer = ExpertsLayer()
    hidden = layer.gate(layer.expert(layer.x, 96), layer.expert(layer.x, 96))
    down, out = layer.expert(hidden, 64), layer.tensor(3, 64)
    layer.node(COMBINE, down, layer.weights, out)
    total = layer.apply(ADD, layer.view(out, 1, 3, 64), layer.given, 1)
    layer.x = layer.given
    assert layer.names(total) == [MLP]
    launches = plan_at(layer.prepare([layer.x], [total], GPU)).launches
    kernels = [launch.module.kernel.name for launch in launches]
    assert kernels == ["router", "route", "q4_digits", "q4_digits"]


def test_a_norm_that_others_read() -> None:
    layer = ExpertsLayer()
    hidden = layer.gate(layer.expert(layer.x, 96), layer.expert(layer.x, 96))
    out = layer.tensor(3, 64)
    layer.node(COMBINE, layer.expert(hidden, 64), layer.weights, out)
    shared = layer.product(layer.normed)
    layer.x = layer.given
    assert sorted(layer.names(out, shared)) == sorted([NORM, MLP, LINEAR])


def test_other_products_stay() -> None:
    layer = ExpertsLayer()
    other = layer.tensor(3, 2, dtype=DType.I32)
    layer.node("aten.relu.default", layer.chosen, other)
    gated = layer.gate(layer.expert(layer.x, 96), layer.expert(layer.x, 96, other))
    layer.x = layer.given
    assert GATED not in layer.names(gated)
    layer = ExpertsLayer()
    seen = layer.expert(layer.x, 96)
    gated = layer.gate(seen, layer.expert(layer.x, 96))
    layer.x = layer.given
    assert GATED not in layer.names(gated, seen)
