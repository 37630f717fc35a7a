"""Products of int8 activations with int8 weights, their sums exact in i32: convolutions, and linear layers as
convolutions of images of one pixel.

Activations are packed first, four channels to a word, weights once at load; `dot4I8Packed` multiplies both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.families.convolution.geometry import Geometry
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, Weight, require
from pteron.ops.operand import HostArray, packing
from pteron.ops.row_layout import folded, row_groups, shared_rows
from pteron.wgsl import Kernel, Kernels

kernel = Kernels(__name__)

PIXELS_FEW = 4  # up to this many pixels, reading the weights once bounds the time of a product
TILES_MANY = 264  # with this many, tiles are tall: two for each multiprocessor of a large device
# Σ |x - zero| · |w| with |x - zero| <= 255 and |w| <= 128 stays below 2^31.
DEPTH_MAX = ((1 << 31) - 1) // (255 * 128)


def product(
    x: Operand,
    weights: Operand,
    weight_sums: Operand,
    planes: Geometry,
    epilogue: Int8Epilogue,
    out: Operand,
    target: Target,
) -> Iterator[Dispatch]:
    """x [image, channel, place] by weights [channel, tap · channel of a group], padded at the end of rows.

    x in floats is quantised first. Groups of a transposed convolution share their scales: the exporter
    quantises along the dim of weights that holds the output channels of one group."""
    channels, depth = planes.rows, planes.terms
    require(depth > 0, "a product needs something to add up", x, weights)
    require(depth <= DEPTH_MAX, f"sums over {depth} products of int8 do not fit into 32 bits", x, weights)
    fits = weights.dtype is DType.I8 and weights.rank == 2 and weights.shape[1] >= depth
    require(fits, f"weights must be i8 [{channels}, at least {depth}]", weights)
    require(weight_sums.numel >= channels, f"{channels} channels need as many sums", weight_sums)
    scale_count = planes.filters if planes.transposed else channels
    epilogue.check(channels, scale_count)
    if out.numel == 0:
        return
    source = planes if planes.transposed else padded(planes)  # transposed windows have gaps
    packed = packed_input(source)
    yield pack(x, planes, source, epilogue, packed)
    chosen, layout, grid = _kernel(target, planes)
    yield Dispatch(
        chosen,
        **layout,
        IS_PADDED=not planes.transposed,
        IS_TRANSPOSED=planes.transposed,
        x=packed,
        weights=_quads(weights, planes),
        weight_sums=weight_sums,
        out=out,
        **epilogue.arguments,
        **parameters(source, epilogue, scale_count),
        **grid,
    )


def pack(
    x: Operand,
    planes: Geometry,
    source: Geometry,
    epilogue: Int8Epilogue,
    packed: Scratch,
    *,
    is_planar: bool = False,
) -> Dispatch:
    """Pack x as words of int8; the planes of `source` may include the padding."""
    is_float = x.dtype.is_float
    require(is_float or x.dtype is DType.I8, "activations must be i8, or floats to quantise", x)
    return Dispatch(
        kernel("q8_pack"),
        IS_PLANAR=is_planar,
        QUANTIZES=is_float,
        x=x,
        out=packed,
        images=planes.batch,
        group_count=planes.groups,
        channels=planes.channels,
        height=planes.plane[0],
        width=planes.plane[1],
        padding_height=planes.window.padding[0] - source.window.padding[0],
        padding_width=planes.window.padding[1] - source.window.padding[1],
        out_height=source.plane[0],
        out_width=source.plane[1],
        inverse=1 / epilogue.x_scale if is_float else 1.0,
        zero=float(epilogue.x_zero),
        threads=packed.count,
    )


def _kernel(target: Target, planes: Geometry) -> tuple[Kernel, dict[str, Any], dict[str, Any]]:
    """(kernel, layout, grid) that suit the sizes and the device."""
    window = {"TAPS": planes.taps, "WINDOW_WIDTH": planes.window.size[1], "DEPTH": _words(planes)}
    pixels, quads, groups = planes.pixels, planes.filter_quads, planes.groups
    if target.is_cpu:
        tile = next(tile for tile in (4, 2, 1) if tile == 1 or _fits(target, planes, tile))
        count = -(-pixels // tile) * quads * groups
        return kernel("q8_thread"), {**window, "TILE": tile}, {"threads": count}
    if pixels <= PIXELS_FEW:
        layout = shared_rows(target, 32, 2)
        grid = row_groups(target, layout, quads * pixels * groups)
        return kernel("q8_matvec", Lane="i32"), {**window, **layout}, {"groups": grid}
    tall = 8 if _tiles(planes, 128) >= TILES_MANY else 4
    grid = folded(target, _tiles(planes, 16 * tall))
    return kernel("q8_tiled"), {**window, "TALL": tall}, {"groups": grid}


def _tiles(planes: Geometry, height: int) -> AnyInt:
    return -(-planes.pixels // 64) * -(-planes.filters // height) * planes.groups


def _fits(target: Target, planes: Geometry, tile: int) -> bool:
    """Whether q8_thread can process `tile` places at a time, within the device's loop limit."""
    loops = planes.taps * (1 + tile + _words(planes) * (1 + tile)) + 6 * tile
    return planes.pixels >= tile and (not target.loop_max or loops <= target.loop_max)


def _quads(weights: Operand, planes: Geometry) -> Weight:
    """Weights as lib/q8.wgsl reads them."""
    return weights.packed(
        *("int8 quads", planes.groups, planes.taps, planes.channels),
        count=planes.groups * planes.filter_quads * planes.taps * _words(planes) * 4,
        storage=Storage.U32,
    )


@packing("int8 quads")
def _pack_quads(elements: HostArray, groups: int, taps: int, channels_in: int) -> HostArray:
    """[channel, tap · channel_in] as [group][channel / 4][tap][word][channel % 4]."""
    rows = elements[:, : taps * channels_in].reshape(groups, -1, taps, channels_in)
    padding = ((0, 0), (0, -rows.shape[1] % 4), (0, 0), (0, -channels_in % 4))
    padded = np.pad(rows, padding)
    _, channels, _, depth = padded.shape
    split = padded.reshape(groups, channels // 4, 4, taps, depth // 4, 4)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2, 5))


@dataclass(frozen=True, slots=True)
class Int8Epilogue:
    """How exact sums become outputs, in int8 or in floats."""

    weight_scales: Operand
    bias: Operand | None
    x_scale: float
    x_zero: int
    out_inverse: float
    out_zero: int
    after: Mapping[str, bool]  # overrides of lib/q8_result.wgsl

    @property
    def arguments(self) -> dict[str, Any]:
        """Of a launch that finishes sums."""
        return {**self.after, "scales": self.weight_scales, "bias": self.bias}

    def check(self, channels: AnyInt, scale_count: AnyInt) -> None:
        is_int8 = -128 <= self.x_zero <= 127
        require(is_int8, f"the zero point {self.x_zero} of int8 activations must be within -128 and 127")
        enough = self.weight_scales.numel >= scale_count
        require(enough, f"{scale_count} channels need as many scales", self.weight_scales)
        require(
            self.bias is None or self.bias.numel >= channels,
            f"bias must have {channels} values, one per channel",
            self.bias,
        )


def padded(planes: Geometry) -> Geometry:
    """The same with the padding as part of the input."""
    height, width = (
        size + 2 * padding for size, padding in zip(planes.plane, planes.window.padding, strict=True)
    )
    return replace(planes, plane=(height, width), window=replace(planes.window, padding=(0, 0)))


def _words(planes: Geometry) -> AnyInt:
    """Words of a group's input channels, four to a word."""
    return -(-planes.channels // 4)


def packed_input(planes: Geometry) -> Scratch:
    """A buffer for the packed input, four channels to a word."""
    pixels = planes.batch * planes.plane[0] * planes.plane[1]
    return Scratch(pixels * planes.groups * _words(planes), Storage.U32)


def parameters(planes: Geometry, epilogue: Int8Epilogue, scale_count: AnyInt) -> dict[str, Any]:
    """The Params of lib/q8_result.wgsl."""
    window = {
        name: number for name, number in planes.window.parameters.items() if not name.startswith("window")
    }
    return window | {
        "pixels": planes.pixels,
        "plane": planes.out_plane[0] * planes.out_plane[1],
        "channels": planes.filters,
        "group_count": planes.groups,
        "scale_count": scale_count,
        "out_width": planes.out_plane[1],
        "height": planes.plane[0],
        "width": planes.plane[1],
        "x_zero": epilogue.x_zero,
        "x_scale": epilogue.x_scale,
        "out_inverse": epilogue.out_inverse,
        "out_zero": float(epilogue.out_zero),
    }
