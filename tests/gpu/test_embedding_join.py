"""Embeddings and the product that follows them in one launch: with and without, and against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bits import assert_same_bits
from embedding_join_cases import SIZE, STEPS, Tokens, first_layer, tokens_of
from join_cases import (
    bound,
    names,
    same_numbers,  # noqa: F401  # a fixture
    with_and_without,
)
from small_graphs import run_graph

from pteron import Device
from pteron.dtypes import DType
from pteron.ops import Target
from pteron.ops.rewrite import JOINS, REWRITES
from pteron.plan import Launch

pytestmark = [pytest.mark.kernels, pytest.mark.rewrites]


@pytest.mark.long(every=8)
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(("depth", "group"), [(96, 32), (256, 64), (2080, 128)])
def test_a_norm_and_a_residual(
    depth: int, group: int, linear: bool, device: Device, own_subgroups: Target, launches: list[Launch]
) -> None:
    graph = first_layer(Tokens(width=depth, group=group, linear=linear))
    for with_them, without in with_and_without(graph, tokens_of(), device, own_subgroups):
        assert_same_bits(with_them, without, device, 1e-5)
    assert names(launches) == ["q4_digits", "q4_digits"]
    assert bound(launches, "q4_digits")[0] >= {"table", "table_scales", "indices", "x", "gain"}


def test_int8(device: Device, own_subgroups: Target, launches: list[Launch]) -> None:
    layers = Tokens(width=256)
    made = layers.int8_product(layers.norm(layers.x), 64)
    graph = layers.ending(made, layers.x)
    for with_them, without in with_and_without(graph, tokens_of(), device, own_subgroups):
        assert_same_bits(with_them, without, device, 1e-5)
    assert names(launches) == ["q4_digits"]


@pytest.mark.long
def test_f16(device: Device, own_subgroups: Target, launches: list[Launch]) -> None:
    """A product is of what f16 would have kept. A device without f16 keeps f32."""
    graph = first_layer(Tokens(DType.F16, width=256))
    for with_them, without in with_and_without(graph, tokens_of(), device, own_subgroups):
        assert_same_bits(with_them, without, device, 4e-3)
    assert "embedding_q4" not in names(launches)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("linear", [True, False])
def test_against_float64(linear: bool, device: Device, own_subgroups: Target, launches: list[Launch]) -> None:
    """Rows are those of the table, to the last bit."""
    layers = Tokens(width=96, linear=linear)
    made = layers.product(layers.x, 8)
    calls = tokens_of()
    found = run_graph(layers.ending(layers.x, made), [*REWRITES, *JOINS], calls, device, own_subgroups)
    for (tokens,), (rows, _) in zip(calls, found, strict=True):
        np.testing.assert_array_equal(rows, layers.rows()[tokens].astype(np.float32))
    assert names(launches) == ["q4_digits"]


@pytest.mark.parametrize("index", [-1, SIZE, 2**31 - 1, -(2**31)])
def test_an_index_out_of_range(
    index: int, device: Device, own_subgroups: Target, launches: list[Launch]
) -> None:
    """One that the graph itself makes gives rows of NaN, and its neighbours are right."""
    layers = Tokens()
    made = layers.tensor(1, STEPS, dtype=DType.I32)
    addend = layers.tensor(1, STEPS, dtype=DType.I32)
    layers.inputs.append(addend)
    layers.node("aten.add.Tensor", layers.inputs[0], addend, 1, made)
    x = layers.embedding(made)
    graph = layers.ending(x, layers.product(x, 8))
    tokens = np.zeros((1, STEPS), np.int32)
    moved = np.array([[3, index, 5]], np.int32)
    ((rows, products),) = run_graph(graph, [*REWRITES, *JOINS], [[tokens, moved]], device, own_subgroups)
    assert names(launches)[-1] == "q4_digits"
    np.testing.assert_array_equal(rows[0, [0, 2]], layers.rows()[[3, 5]].astype(np.float32))
    assert np.isnan(rows[0, 1]).all()
    assert np.isnan(products[0, 1]).all()
    assert np.isfinite(products[0, [0, 2]]).all()


def test_what_is_not_joined(device: Device, own_subgroups: Target, launches: list[Launch]) -> None:
    """A product of another embedding's rows, a device of few buffers, and a residual that is x itself: the
    launch would read what it writes."""
    graph = first_layer(Tokens())
    few = replace(own_subgroups, buffers_max=6)
    for with_them, without in with_and_without(graph, tokens_of(), device, few):
        assert_same_bits(with_them, without, device, 1e-5)
    assert "embedding_q4" in names(launches)
    layers = Tokens()
    graph = layers.ending(layers.sum(layers.product(layers.x, layers.width), layers.x))
    for with_them, without in with_and_without(graph, tokens_of(), device, own_subgroups):
        assert_same_bits(with_them, without, device, 1e-5)
    assert "embedding_q4" in names(launches)
