"""Rotations: which of them attention takes in, which read their tables in place, which stay."""

from __future__ import annotations

from typing import Any

import pytest
from sketch import Sketch

from pteron.graph import SymInt, Tensor

ROPE, HALVES, PAIRS = (f"et_vk.apply_rotary_emb{form}.default" for form in ("", "_hf", "_interleaved"))
SLICE, CLONE, ADD = "aten.slice_copy.Tensor", "aten.clone.default", "aten.add.Tensor"
NORM = "et_vk.rms_norm.default"
SDPA, UPDATE = "sdpa_with_kv_cache.default", "update_cache.default"
OPTIONED = "pteron.attention.default"
FUSED, IN_PLACE = "pteron.rope_sdpa", "pteron.rope_slice"
pytestmark = pytest.mark.rewrites


class Layer:
    """Attention over caches, with room for what may come between it and the rotation before it."""

    def __init__(self) -> None:
        self.sketch = Sketch()
        self.position, self.end = self.sketch.symbol(), self.sketch.symbol()
        self.table, self.other = self.sketch.constant(32, 4), self.sketch.constant(32, 4)
        self.q, self.k, self.v = self.tensors(4, 2, 2)
        self.turned_q, self.turned_k, self.out = self.tensors(4, 2, 4)
        self.rows, self.other_rows = self.sketch.tensor(5, 4), self.sketch.tensor(5, 4)

    def tensors(self, *heads: int) -> list[Tensor]:
        return [self.sketch.tensor(1, 5, count, 8) for count in heads]

    def slices(self, start: Any = None, dim: int = 0, step: int = 1) -> None:
        start = self.position if start is None else start
        self.sketch.node(SLICE, self.table, dim, self.position, self.end, step, self.rows)
        self.sketch.node(SLICE, self.other, dim, start, self.end, step, self.other_rows)

    def rope(self) -> None:
        outputs = self.sketch.list(self.turned_q, self.turned_k)
        self.sketch.node(ROPE, self.q, self.k, self.rows, self.other_rows, outputs)

    def attention(self, q: Tensor | None = None, k: Tensor | None = None) -> None:
        caches = (self.sketch.constant(1, 32, 2, 8), self.sketch.constant(1, 32, 2, 8))
        rest = (*caches, self.position, 1, None, 0.0, True, None)
        self.sketch.node(SDPA, q or self.turned_q, k or self.turned_k, self.v, *rest, self.out)

    def rotated(self) -> None:
        """Slices, a rotation and attention."""
        self.slices()
        self.rope()
        self.attention()

    def calls(self, *outputs: Tensor, inputs: tuple[Tensor, ...] = ()) -> list[str]:
        given: list[Tensor | SymInt] = [self.position, self.end, self.q, self.k, self.v, *inputs]
        graph = self.sketch.prepare(given, [self.out, *outputs]).prepared
        return [call.operator.name for call in graph.each]


def test_a_layer() -> None:
    layer = Layer()
    layer.rotated()
    assert layer.calls() == [FUSED]


def test_attention_with_options() -> None:
    """With a window; but a rotation does not write values of another width."""
    for width, calls in ((8, [FUSED]), (4, [IN_PLACE, OPTIONED])):
        layer = Layer()
        layer.slices()
        layer.rope()
        layer.v, out = layer.sketch.tensor(1, 5, 2, width), layer.sketch.tensor(1, 5, 4, width)
        caches = (layer.sketch.constant(1, 32, 2, 8), layer.sketch.constant(1, 32, 2, width))
        rest = (layer.position, None, 7, None, None, None, None)
        layer.sketch.node(OPTIONED, layer.turned_q, layer.turned_k, layer.v, *caches, *rest, out)
        layer.out = out
        assert layer.calls() == calls


def test_copies_of_slices() -> None:
    layer = Layer()
    layer.slices()
    rows = [layer.sketch.tensor(5, 4), layer.sketch.tensor(5, 4)]
    for old, new in zip((layer.rows, layer.other_rows), rows, strict=True):
        layer.sketch.node(CLONE, old, None, new)
    layer.rows, layer.other_rows = rows
    layer.rope()
    layer.attention()
    assert layer.calls() == [FUSED]


def test_slices_for_several_layers_vanish_with_the_last() -> None:
    layer = Layer()
    layer.rotated()
    first = layer.out
    layer.turned_q, layer.turned_k, layer.out = layer.tensors(4, 2, 4)
    layer.rope()
    layer.attention()
    assert layer.calls(first) == [FUSED, FUSED]


def test_slices_that_others_read_stay() -> None:
    layer = Layer()
    layer.rotated()
    assert layer.calls(layer.rows) == [SLICE, FUSED]
    more = layer.sketch.tensor(5, 4)
    layer.sketch.node(ADD, layer.other_rows, layer.other_rows, 1, more)
    assert layer.calls(more) == [SLICE, FUSED, ADD]


def test_halves() -> None:
    layer = Layer()
    tables = (layer.sketch.constant(32, 8), layer.sketch.constant(32, 8))
    outputs = layer.sketch.list(layer.turned_q, layer.turned_k)
    layer.sketch.node(HALVES, layer.q, layer.k, *tables, layer.position, outputs)
    layer.attention()
    assert layer.calls() == [FUSED]


@pytest.mark.parametrize("is_shared", [True, False])
def test_pairs(is_shared: bool) -> None:
    layer = Layer()
    layer.q, layer.turned_q, layer.out = layer.tensors(2, 2, 2)
    tables = [layer.sketch.constant(2, 8), layer.sketch.constant(2, 8)]
    layer.sketch.node(PAIRS, layer.q, tables[0], layer.turned_q)
    layer.sketch.node(PAIRS, layer.k, tables[0 if is_shared else 1], layer.turned_k)
    layer.attention()
    assert layer.calls() == [FUSED] if is_shared else [PAIRS, PAIRS, SDPA]


@pytest.mark.parametrize("slices", [(None, 1, 1), (None, 0, 2), (None, -2, 1), (1, 0, 1)])
def test_other_slices_stay(slices: tuple[Any, ...]) -> None:
    """Of another dim or step, and from different rows."""
    layer = Layer()
    layer.slices(*slices)
    layer.rope()
    layer.attention()
    assert layer.calls() == [SLICE, SLICE, FUSED]


def test_a_table_that_changes_is_read_when_it_was() -> None:
    layer = Layer()
    layer.table = layer.sketch.constant(1, 32, 1, 4)
    rows = layer.sketch.tensor(1, 5, 1, 4)
    fresh, done = layer.sketch.tensor(1, 5, 1, 4), layer.sketch.tensor(1)
    layer.sketch.node(SLICE, layer.table, 0, layer.position, layer.end, 1, rows)
    layer.sketch.node(UPDATE, fresh, layer.table, layer.position, done)
    layer.sketch.node(SLICE, layer.other, 0, layer.position, layer.end, 1, layer.other_rows)
    layer.rows = rows
    layer.rope()
    layer.attention()
    assert layer.calls(done, inputs=(fresh,)) == [SLICE, UPDATE, SLICE, ROPE, SDPA]


def test_what_others_see_stays() -> None:
    for name in ("turned_q", "turned_k"):
        layer = Layer()
        layer.rotated()
        assert layer.calls(getattr(layer, name)) == [IN_PLACE, SDPA]


def test_queries_without_their_keys_stay() -> None:
    layer = Layer()
    layer.slices()
    layer.rope()
    layer.attention(k=layer.k)
    assert layer.calls() == [IN_PLACE, SDPA]


def normed(layer: Layer, x: Tensor) -> Tensor:
    result = layer.sketch.tensor(*x.shape_max)
    layer.sketch.node(NORM, x, layer.sketch.constant(8), 1e-6, result)
    return result


@pytest.mark.parametrize(
    ("times_q", "times_k", "calls"),
    [
        (1, 1, [FUSED]),
        (1, 0, [NORM, FUSED]),
        (0, 1, [NORM, FUSED]),
        (2, 2, [NORM, NORM, FUSED]),
    ],
)
def test_norms(times_q: int, times_k: int, calls: list[str]) -> None:
    layer = Layer()
    given = (layer.q, layer.k)
    for _ in range(times_q):
        layer.q = normed(layer, layer.q)
    for _ in range(times_k):
        layer.k = normed(layer, layer.k)
    layer.rotated()
    layer.q, layer.k = given
    assert layer.calls() == calls


def test_keys_for_queries_stay() -> None:
    layer = Layer()
    layer.q, layer.turned_q, layer.out = layer.tensors(2, 2, 2)
    layer.slices()
    layer.rope()
    layer.attention(q=layer.turned_k, k=layer.turned_q)
    assert layer.calls() == [IN_PLACE, SDPA]
