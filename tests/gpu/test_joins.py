"""Launches that are joined: graphs with and without, the same bits where sums are added up the same way, and
against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from bits import assert_same_bits
from join_cases import (
    LIVE,
    ROWS,
    SLICE,
    VIEW,
    Calls,
    Layers,
    bound,
    feed_forward,
    names,
    normed_layers,
    numbers,
    random,
    same_numbers,  # noqa: F401  # a fixture
    split_into,
    sum_and_norm,
    two_parts,  # noqa: F401  # a fixture
    with_and_without,
)
from quantized_cases import packed
from small_graphs import run_graph

from pteron import Device
from pteron.dtypes import DType
from pteron.graph import Graph, Tensor
from pteron.ops import Target
from pteron.ops.rewrite import JOINS, REWRITES
from pteron.plan import Launch
from pteron.reference.products import matrix_q4

pytestmark = [pytest.mark.kernels, pytest.mark.rewrites]

F16_STEP = float(np.finfo(np.float16).eps)


@pytest.fixture(params=["hardware", "subgroups"])
def gpu(request: pytest.FixtureRequest, device: Device) -> Target:
    """The device as a GPU without subgroups and as one with its own."""
    if request.param == "subgroups":
        target: Target = request.getfixturevalue("own_subgroups")
        return target
    return replace(device.target, is_cpu=False)


def check_same(graph: Graph, calls: Calls, device: Device, target: Target, rtol: float = 1e-5) -> None:
    for with_them, without in with_and_without(graph, calls, device, target):
        assert_same_bits(with_them, without, device, rtol)


# Merges and rows --------------------------------------------------------------------------------


@pytest.mark.long(every=18)
@pytest.mark.parametrize("columns", [256, 288, 1024, 2080])
@pytest.mark.parametrize("shows", [False, True])
def test_a_norm(columns: int, shows: bool, device: Device, gpu: Target, launches: list[Launch]) -> None:
    check_same(*sum_and_norm(columns, shows=shows), device, gpu)
    assert names(launches) == ["q4_tiled", "q4_merge_rows", "q4_tiled", "q4_merge"]
    (joined,) = bound(launches, "q4_merge_rows")
    assert joined == {"sums", "residual", "gain", "normed"} | ({"out"} if shows else set())


def test_a_norm_against_float64(device: Device, gpu: Target) -> None:
    layers = Layers()
    x = layers.input(1, ROWS, 128)
    weights, scales = packed(256, 128), Layers.scales(128, 256)
    gain = random.uniform(0.5, 2, 256).astype(np.float32)
    product = layers.made(
        "et_vk.linear_q4gsw.default",
        *(x, layers.given(weights), layers.given(scales), 32, None),
        shape=(1, ROWS, 256),
    )
    normed = layers.made("et_vk.rms_norm.default", product, layers.given(gain), 1e-5, shape=(1, ROWS, 256))
    calls = [[numbers(1, rows, 128)] for rows in LIVE]
    found = run_graph(layers.ending(normed, product), [*REWRITES, *JOINS], calls, device, gpu)
    dense = matrix_q4(torch.from_numpy(weights.astype(np.int64)), torch.from_numpy(scales).double(), 32, 128)
    for (x_given,), (norm, made) in zip(calls, found, strict=True):
        expected = x_given.astype(np.float64) @ dense.numpy().T
        np.testing.assert_allclose(made, expected, atol=2e-6)
        scale = 1 / np.sqrt((expected**2).mean(-1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(norm, expected * scale * gain, atol=1e-5)


def read_again(layers: Layers, total: Tensor) -> Tensor:
    """The sum once more, after its norm."""
    return layers.sum(layers.product(layers.norm(total), total.shape_max[-1]), total)


def read_by_a_view(layers: Layers, total: Tensor) -> Tensor:
    size = layers.size(total, 1)
    seen = layers.made(VIEW, total, [size, total.shape_max[-1]], shape=total.shape_max[1:])
    return layers.sum(layers.product(layers.norm(seen), total.shape_max[-1]), seen)


def read_as_a_copy(layers: Layers, total: Tensor) -> Tensor:
    """The first rows: at a call that brings no more, a copy that changes nothing."""
    shape = (1, LIVE[1], total.shape_max[-1])
    first = layers.made(SLICE, total, 1, 0, LIVE[1], 1, shape=shape)
    return layers.sum(layers.product(layers.norm(first), total.shape_max[-1]), first)


@pytest.mark.parametrize("read", [read_again, read_by_a_view, read_as_a_copy])
def test_what_is_read_later_is_written(
    read: Callable[[Layers, Tensor], Tensor], device: Device, gpu: Target, launches: list[Launch]
) -> None:
    layers = Layers()
    x, addend = layers.input(1, ROWS, 128), layers.input(1, ROWS, 256)
    graph = layers.ending(read(layers, layers.sum(layers.product(x, 256), addend)))
    rows = [ROWS, 11, 5]
    check_same(graph, [[numbers(1, count, 128), numbers(1, count, 256)] for count in rows], device, gpu)
    (joined,) = bound(launches, "q4_merge_rows")
    assert "out" in joined


@pytest.mark.long(every=2)
@pytest.mark.parametrize(("columns", "parts"), [(264, 2), (252, 2), (128, 2), (256, 1)])
def test_what_is_not_joined(
    columns: int,
    parts: int,
    device: Device,
    gpu: Target,
    launches: list[Launch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of no whole eights, short ones, and products that are not split; 264 columns are joined."""
    split_into(monkeypatch, parts)
    layers = Layers()
    x, addend = layers.input(1, ROWS, 128), layers.input(1, ROWS, columns)
    graph = layers.ending(layers.norm(layers.sum(layers.product(x, columns), addend)))
    check_same(graph, [[numbers(1, count, 128), numbers(1, count, columns)] for count in LIVE], device, gpu)
    assert ("q4_merge_rows" in names(launches)) == (columns == 264)


@pytest.mark.long(every=6)
@pytest.mark.parametrize(("columns", "hidden"), [(64, 256), (256, 96), (288, 2080)])
def test_int8(columns: int, hidden: int, device: Device, gpu: Target, launches: list[Launch]) -> None:
    check_same(*feed_forward(columns, hidden), device, gpu)
    tiles = ["q4_int8", "q4_merge_rows"]
    assert names(launches) == ["quantize_rows", *tiles, *tiles, "q4_int8", "q4_merge"]
    gate, down = bound(launches, "q4_merge_rows")
    assert gate == {"sums", "x_scales", "row_scales", "words"}
    assert down == gate | {"residual", "gain"}


@pytest.mark.long(every=2)
@pytest.mark.parametrize("shows", [False, True])
def test_f16(shows: bool, device: Device, gpu: Target, launches: list[Launch]) -> None:
    """What is normed is what f16 would have kept, whether it was written or not. A device without f16 keeps
    f32, and has nothing to round. With f16 a GPU may round a sum the other way, so that numbers which go into
    the last product differ by a step of f16, up or down: its results, and their rounding, differ by some such
    steps of what results are in size."""
    for with_them, without in with_and_without(*sum_and_norm(256, shows=shows, dtype=DType.F16), device, gpu):
        if not gpu.shader_f16:
            assert_same_bits(with_them, without, device)
            continue
        found, wanted = with_them.astype(np.float64), without.astype(np.float64)
        size = np.sqrt(np.square(wanted).mean())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=8 * F16_STEP * size)
    (joined,) = (each.module.kernel for each in launches if each.module.kernel.name == "q4_merge_rows")
    assert dict(joined.given)["R"] == ("f16" if gpu.shader_f16 else "f32")
    assert ("out" in bound(launches, "q4_merge_rows")[0]) == shows


# Norms and products ----------------------------------------------------------------------------


@pytest.mark.long(every=11)
@pytest.mark.parametrize("depth", [16, 96, 512, 1028])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize("shows", [False, True])
def test_norms_of_few_rows(
    depth: int, dtype: DType, shows: bool, device: Device, gpu: Target, launches: list[Launch]
) -> None:
    """A product norms its rows itself, unless another node reads them."""
    step = F16_STEP if dtype is DType.F16 else 1e-6
    for joined, apart in with_and_without(*normed_layers(depth, dtype, shows=shows), device, gpu):
        np.testing.assert_allclose(joined.astype(np.float32), apart.astype(np.float32), atol=8 * step)
    norms = [name for name in names(launches) if name.startswith("norm")]
    assert len(norms) == (2 if shows else 0)
    assert ("gain" in bound(launches, "matvec")[0]) != shows
