"""Graphs of layers that launches join, and what they give with and without joining."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from quantized_cases import packed
from small_graphs import Array, Drawing, run_graph

from pteron import Device
from pteron.dtypes import DType
from pteron.families.quantized import tiled_q4, tiles
from pteron.graph import Graph, Tensor
from pteron.ops import Target
from pteron.ops.rewrite import JOINS, REWRITES
from pteron.ops.tiles import Tile
from pteron.plan import Launch

ADD, VIEW, SLICE = "aten.add.Tensor", "aten.view_copy.default", "aten.slice_copy.Tensor"
ROWS = 17
LIVE = (ROWS, 5, 11)  # more rows than products take by digits
random = np.random.default_rng(0)
Calls = list[list[Array]]


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

    def byte_product(self, x: Tensor, columns: int) -> Tensor:
        """x times a matrix of 8-bit weights in groups with minima."""
        depth = x.shape_max[-1]
        least = random.uniform(-0.01, 0.01, (depth // 32, columns)).astype(np.float32)
        scales = self.scales(depth, columns) / 16
        factors = self.given(self.bytes(depth, columns)), self.given(scales), self.given(least), 32, None
        return self.made("pteron.linear_q8gsw.default", x, *factors, shape=(*x.shape_max[:-1], columns))

    def row_product(self, x: Tensor, columns: int) -> Tensor:
        """x as rows times a matrix of 8-bit weights with a scale for each column, and a bias; shaped as x."""
        made = self.flat_product(x, columns)
        sizes = [self.size(x, dim) for dim in range(len(x.shape_max) - 1)]
        return self.made(
            "aten.view_copy.default", made, [*sizes, columns], shape=(*x.shape_max[:-1], columns)
        )

    def flat_product(self, x: Tensor, columns: int) -> Tensor:
        """The same without the last view."""
        *dims, depth = x.shape_max
        rows = self.made("aten.view_copy.default", x, [-1, depth], shape=(prod(dims), depth))
        factors = self.given(self.bytes(depth, columns)), self.given(self.scales(depth, columns)[0] / 16)
        shape = (rows.shape_max[0], columns)
        made = self.made("aten._weight_int8pack_mm.default", rows, *factors, shape=shape)
        bias = self.given(random.normal(size=columns).astype(np.float32))
        return self.made(ADD, made, bias, 1, shape=shape)

    @staticmethod
    def bytes(depth: int, columns: int) -> Array:
        return random.integers(-128, 128, (columns, depth)).astype(np.int8)

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

    def dense(self, x: Tensor, matrix: Array) -> Tensor:
        """x times a matrix of floats."""
        factors = self.given(matrix.astype(self.dtype.numpy)), None
        return self.made("aten.linear.default", x, *factors, shape=(*x.shape_max[:-1], len(matrix)))

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


def normed_layers(depth: int, dtype: DType = DType.F32, *, shows: bool = False) -> tuple[Graph, Calls]:
    """One to four rows, normed, times three float matrices of different widths, then times one alone."""
    layers = Layers(dtype)
    x = layers.input(1, 4, depth)
    outputs = []
    for widths in ((5, 12, 7), (depth,)):
        normed = layers.norm(x)
        size = float(depth) ** -0.5
        made = [layers.dense(normed, random.normal(0, size, (width, depth))) for width in widths]
        outputs += [*made, normed] if shows else made
    calls = [[numbers(1, rows, depth).astype(dtype.numpy)] for rows in (4, 1, 3, 2)]
    return layers.ending(*outputs), calls


def feed_forward(columns: int, hidden: int) -> tuple[Graph, Calls]:
    """Products of int8: a norm, two products, a gate, a third product and a sum, and another norm."""
    layers = Layers()
    x = layers.input(1, ROWS, columns)
    normed = layers.norm(x)
    gated = layers.gate(layers.int8_product(normed, hidden), layers.int8_product(normed, hidden))
    total = layers.sum(layers.int8_product(gated, columns), x)
    out = layers.int8_product(layers.norm(total), 12)
    return layers.ending(out), [[numbers(1, rows, columns)] for rows in LIVE]
