"""Launches that are joined: graphs with and without, the same bits where sums are added up the same way, and
against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from arguments import Argument, tensor, weight
from bits import assert_same_bits
from small_graphs import Array, Drawing, run_graph
from subgroup_fixtures import skip_if_narrow
from test_attention_q4 import CAPACITY, block
from test_attention_q4 import check as check_attention
from test_quantized import packed

from pteron import Device
from pteron.dtypes import DType
from pteron.families.quantized import tiled_q4, tiles
from pteron.families.quantized.tiles import Strip, Tile
from pteron.graph import Graph, Tensor
from pteron.ops import Target
from pteron.ops.join import JOINS
from pteron.ops.rewrite import REWRITES
from pteron.plan import Launch
from pteron.reference.products import matrix_q4

pytestmark = [pytest.mark.kernels, pytest.mark.rewrites]

ADD, VIEW, SLICE = "aten.add.Tensor", "aten.view_copy.default", "aten.slice_copy.Tensor"
ROWS = 17
F16_STEP = float(np.finfo(np.float16).eps)
LIVE = (ROWS, 5, 11)  # more rows than products take by digits
random = np.random.default_rng(0)
Calls = list[list[Array]]


@pytest.fixture(params=["hardware", "subgroups"])
def gpu(request: pytest.FixtureRequest, device: Device) -> Target:
    """The device as a GPU without subgroups and as one with its own."""
    if request.param == "subgroups":
        target: Target = request.getfixturevalue("own_subgroups")
        return target
    return replace(device.target, is_cpu=False)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Data of a test are the same whichever tests ran before it."""
    random.bit_generator.state = np.random.default_rng(0).bit_generator.state


@pytest.fixture(autouse=True)
def two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are split, however small, and by tiles, however few their rows."""
    split_into(monkeypatch, 2)
    monkeypatch.setattr(tiles, "choose_strip", lambda *_: None)


def split_into(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(tiled_q4, "choose", lambda *_: (Tile(4, 4, 4, 16, 16), parts))


def names(launches: Sequence[Launch]) -> list[str]:
    return [launch.module.kernel.name for launch in launches]


def bound(launches: Sequence[Launch], name: str) -> list[set[str]]:
    """What each launch of a kernel binds."""
    return [
        {binding.name for binding in launch.module.bindings}
        for launch in launches
        if launch.module.kernel.name == name
    ]


def numbers(*shape: int) -> Array:
    return random.normal(size=shape).astype(np.float32)


class Layers(Drawing):
    """Layers of a model, in one float type."""

    def __init__(self, dtype: DType = DType.F32) -> None:
        super().__init__()
        self.dtype = dtype

    def tensor(self, *shape: int, dtype: DType | None = None, memory: int | None = None) -> Tensor:
        return super().tensor(*shape, dtype=dtype or self.dtype, memory=memory)

    def product(self, x: Tensor, columns: int) -> Tensor:
        """x times a matrix of 4-bit weights."""
        depth = x.shape_max[-1]
        factors = self.given(packed(columns, depth)), self.given(self.scales(depth, columns))
        shape = (*x.shape_max[:-1], columns)
        return self.made("et_vk.linear_q4gsw.default", x, *factors, 32, None, shape=shape)

    def int8_product(self, x: Tensor, columns: int) -> Tensor:
        """x as int8 times a matrix of 4-bit weights."""
        *rows, depth = x.shape_max
        found = self.several(
            "torchao.choose_qparams_affine.default",
            *(x, "ASYMMETRIC", [*[1] * len(rows), depth], None, -128, 127, 1e-6, None, None, False),
            shapes=[rows, rows],
            dtypes=["f32", "i8"],
        )
        words = packed(columns, depth)
        nibbles = np.stack([words & 15, words >> 4], -1).reshape(columns, -1).astype(np.int32) - 8
        sums = nibbles[:, :depth].reshape(columns, depth // 32, 32).sum(-1).T.astype(np.int32)
        weights = self.given(words), self.given(np.ascontiguousarray(sums))
        arguments = x, *found, *weights, self.given(self.scales(depth, columns)), 32, None
        return self.made("et_vk.linear_dq8ca_q4gsw.default", *arguments, shape=(*rows, columns))

    def norm(self, x: Tensor) -> Tensor:
        gain = self.given(random.uniform(0.5, 2, x.shape_max[-1]).astype(np.float32))
        return self.made("et_vk.rms_norm.default", x, gain, 1e-5, shape=x.shape_max)

    def sum(self, a: Tensor, b: Tensor) -> Tensor:
        return self.made(ADD, a, b, 1, shape=a.shape_max)

    def gate(self, x: Tensor, y: Tensor) -> Tensor:
        sigmoid = self.made("aten.sigmoid.default", x, shape=x.shape_max)
        opened = self.made("aten.mul.Tensor", x, sigmoid, shape=x.shape_max)
        return self.made("aten.mul.Tensor", opened, y, shape=x.shape_max)

    @staticmethod
    def scales(depth: int, columns: int) -> Array:
        size = 0.1 / np.sqrt(depth)
        return random.uniform(size / 2, size, (depth // 32, columns)).astype(np.float32)


def with_and_without(graph: Graph, calls: Calls, device: Device, target: Target) -> list[tuple[Array, Array]]:
    """Every output of every call, with all joins and with none; with them the plans are those noted last."""
    without = run_graph(graph, list(REWRITES), calls, device, target)
    with_them = run_graph(graph, [*REWRITES, *JOINS], calls, device, target)
    pairs = [zip(a, b, strict=True) for a, b in zip(with_them, without, strict=True)]
    return [pair for outputs in pairs for pair in outputs]


def check_same(graph: Graph, calls: Calls, device: Device, target: Target, rtol: float = 1e-5) -> None:
    for with_them, without in with_and_without(graph, calls, device, target):
        assert_same_bits(with_them, without, device, rtol)


# Merges and rows --------------------------------------------------------------------------------


def sum_and_norm(
    columns: int, depth: int = 128, *, shows: bool = False, dtype: DType = DType.F32
) -> tuple[Graph, Calls]:
    """A product plus a tensor, normed, times another matrix; the sum may be an output too."""
    layers = Layers(dtype)
    x, addend = layers.input(1, ROWS, depth), layers.input(1, ROWS, columns)
    total = layers.sum(layers.product(x, columns), addend)
    out = layers.product(layers.norm(total), 12)
    graph = layers.ending(out, total) if shows else layers.ending(out)
    calls = [[numbers(1, rows, depth), numbers(1, rows, columns)] for rows in LIVE]
    return graph, [[each.astype(dtype.numpy) for each in call] for call in calls]


@pytest.mark.parametrize("columns", [256, 288, 1024, 2080])
@pytest.mark.parametrize("shows", [False, True])
def test_a_norm(columns: int, shows: bool, device: Device, gpu: Target, launches: list[Launch]) -> None:
    check_same(*sum_and_norm(columns, shows=shows), device, gpu)
    assert names(launches) == ["q4_tiled", "q4_merge_rows", "q4_tiled", "q4_merge_quads"]
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


def feed_forward(columns: int, hidden: int) -> tuple[Graph, Calls]:
    """Products of int8: a norm, two products, a gate, a third product and a sum, and another norm."""
    layers = Layers()
    x = layers.input(1, ROWS, columns)
    normed = layers.norm(x)
    gated = layers.gate(layers.int8_product(normed, hidden), layers.int8_product(normed, hidden))
    total = layers.sum(layers.int8_product(gated, columns), x)
    out = layers.int8_product(layers.norm(total), 12)
    return layers.ending(out), [[numbers(1, rows, columns)] for rows in LIVE]


@pytest.mark.parametrize(("columns", "hidden"), [(64, 256), (256, 96), (288, 2080)])
def test_int8(columns: int, hidden: int, device: Device, gpu: Target, launches: list[Launch]) -> None:
    check_same(*feed_forward(columns, hidden), device, gpu)
    tiles = ["q4_int8", "q4_merge_rows"]
    assert names(launches) == ["quantize_rows", *tiles, *tiles, "q4_int8", "q4_merge_quads"]
    gate, down = bound(launches, "q4_merge_rows")
    assert gate == {"sums", "x_scales", "row_scales", "words"}
    assert down == gate | {"residual", "gain"}


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
    assert dict(joined.declarations)["R"] == ("f16" if gpu.shader_f16 else "f32")
    assert ("out" in bound(launches, "q4_merge_rows")[0]) == shows


# Merges and rotations ---------------------------------------------------------------------------

PREFILL = {"S": (9, 5, 6), "p": (0, 9, 14)}
FORMS = ["neighbours", "halves", "pairs"]


SHAPES = [(4, 2, 32), (3, 1, 64), (2, 2, 40)]
shapes = pytest.mark.parametrize(("heads", "key_heads", "head_width"), SHAPES)
batches = pytest.mark.parametrize("batch", [1, 2])


def turned_block(
    form: str, heads: int, key_heads: int, head_width: int, batch: int, rotary: int, **options: Any
) -> tuple[Argument, ...]:
    """An attention between products, whose tables of halves turn so many elements of a head."""
    key_heads = heads if form == "pairs" else key_heads
    arguments = list(block(form, heads, key_heads, head_width, batch, biases=True, **options))
    if form == "halves":
        first = arguments.index(form) + 1
        arguments[first : first + 2] = [weight(CAPACITY, rotary, low=-1, high=1) for _ in range(2)]
    return tuple(arguments)


@pytest.mark.parametrize(("form", "rest"), [("neighbours", 0), ("halves", 0), ("halves", 8), ("pairs", 0)])
@shapes
@batches
def test_rotations(
    form: str,
    rest: int,
    heads: int,
    key_heads: int,
    head_width: int,
    batch: int,
    gpu: Target,
    launches: list[Launch],
) -> None:
    """Against float64, for every form of tables."""
    sizes = heads, key_heads, head_width, batch, head_width - rest
    residual = tensor(batch, "S", 12)
    check_attention(gpu, turned_block(form, *sizes, output=12, residual=residual), live=PREFILL)
    assert "q4_merge_rope" in names(launches)
    assert "rope" not in names(launches)


@pytest.mark.parametrize("form", FORMS)
@shapes
@batches
def test_rotations_of_tiles(
    form: str,
    heads: int,
    key_heads: int,
    head_width: int,
    batch: int,
    gpu: Target,
    launches: list[Launch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same of products that are not split: halves of a head are not the same invocation's."""
    split_into(monkeypatch, 1)
    sizes = heads, key_heads, head_width, batch, head_width
    check_attention(replace(gpu, buffers_max=9), turned_block(form, *sizes), live=PREFILL)
    assert ("rope" in names(launches)) == (form == "halves")
    assert any("q_out" in each for each in bound(launches, "q4_tiled")) == (form != "halves")


@pytest.mark.parametrize("form", FORMS)
def test_rotations_of_strips(
    form: str, own_subgroups: Target, launches: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of strips, which need subgroups of eight lanes: q4_rows exchanges values among eight."""
    skip_if_narrow(own_subgroups)
    monkeypatch.setattr(tiles, "choose_strip", lambda *_: (Strip(8, 1), 1))  # as for groups of 8
    target = replace(own_subgroups, buffers_max=9)
    check_attention(target, turned_block(form, 4, 2, 32, 2, 32), live=PREFILL)
    assert ("rope" in names(launches)) == (form == "halves")
    assert any("q_out" in each for each in bound(launches, "q4_rows")) == (form != "halves")


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("head_width", "rotary"), [(36, 36), (40, 36), (34, 32)])
def test_heads_that_are_no_quads(
    head_width: int,
    rotary: int,
    parts: int,
    gpu: Target,
    launches: list[Launch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split_into(monkeypatch, parts)
    check_attention(gpu, turned_block("halves", 4, 2, head_width, 1, rotary), live=PREFILL)
    assert "rope" in names(launches)


def test_a_device_of_few_buffers(
    gpu: Target, launches: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles bind x, weights, scales and bias besides what a rotation binds: one more than eight."""
    split_into(monkeypatch, 1)
    check_attention(replace(gpu, buffers_max=8), turned_block("neighbours", 4, 2, 32, 1, 32), live=PREFILL)
    assert "rope" in names(launches)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_rotations_in_float_types(
    dtype: str, parts: int, gpu: Target, launches: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    split_into(monkeypatch, parts)
    arguments = turned_block("neighbours", 4, 2, 32, 1, 32)
    tolerance = 3e-5 if dtype == "f32" else 2e-2
    check_attention(replace(gpu, buffers_max=9), arguments, live=PREFILL, dtype=dtype, tolerance=tolerance)
    assert "rope" not in names(launches)


def attention_of_int8(depth: int = 64, *, halves: bool = True, shows: bool = False) -> tuple[Graph, Calls]:
    """Queries, keys and values of int8, turned by halves or by neighbours, and attention over caches; queries
    may be an output too."""
    heads, width, capacity = 4, 16, 32
    layers = Layers()
    x = layers.input(1, ROWS, depth)
    steps, seen = layers.size(x, 1), (1, ROWS, heads, width)
    made = [layers.int8_product(x, heads * width) for _ in range(3)]
    q, k, v = (layers.made(VIEW, one, [1, steps, heads, width], shape=seen) for one in made)
    columns = width if halves else width // 2
    tables = [layers.given(numbers(capacity, columns)) for _ in range(2)]
    name, rest = "et_vk.apply_rotary_emb_hf.default", [0]
    if not halves:
        name, rest = "et_vk.apply_rotary_emb.default", []
        tables = [layers.made(SLICE, each, 0, 0, steps, 1, shape=(ROWS, columns)) for each in tables]
    turned = layers.several(name, q, k, *tables, *rest, shapes=[seen, seen])
    caches = [layers.given(np.zeros((1, capacity, heads, width), np.float32)) for _ in range(2)]
    attention = *caches, 0, 1, None, 0.0, True, None
    given = layers.made("sdpa_with_kv_cache.default", *turned, v, *attention, shape=seen)
    graph = layers.ending(given, made[0]) if shows else layers.ending(given)
    return graph, [[numbers(1, rows, depth)] for rows in LIVE]


@pytest.mark.parametrize("shows", [False, True])
def test_rotations_of_int8(shows: bool, device: Device, gpu: Target, launches: list[Launch]) -> None:
    """Where somebody else reads the queries, they are written before they are turned."""
    check_same(*attention_of_int8(shows=shows), device, gpu)
    assert ("q4_merge_rope" in names(launches)) != shows
    assert ("rope" in names(launches)) == shows


def test_rotations_of_int8_tiles(
    device: Device, gpu: Target, launches: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    split_into(monkeypatch, 1)
    check_same(*attention_of_int8(halves=False), device, replace(gpu, buffers_max=16))
    assert "rope" not in names(launches)
    assert any("q_out" in each for each in bound(launches, "q4_int8"))
