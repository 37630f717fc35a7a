"""Products of int8 activations with int8 weights, their sums exact in i32: convolutions, and linear layers as
convolutions of planes of one place.

Activations are packed first, four channels to a word, weights once at load; `dot4I8Packed` multiplies both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.families.quantized.planes import Epilogue, Planes
from pteron.ops import Dispatch, Operand, Scratch, Target, Weight, require
from pteron.ops.operand import HostArray, packing
from pteron.ops.row_layout import folded, row_groups, shared_rows
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

PLACES_FEW = 4  # up to here a product reads its weights once and is bound by that
TILES_MANY = 264  # from here on tiles are tall: two for each multiprocessor of a large device
# Σ |x - zero| · |w| with |x - zero| <= 255 and |w| <= 128 stays below 2^31.
DEPTH_MAX = ((1 << 31) - 1) // (255 * 128)

TRANSPOSED = {
    "source": "let at = i32(place + padding) - i32(i * dilation); "
    "return select(-1, at / i32(stride), at >= 0 && at % i32(stride) == 0);"
}
# x as int8, where it comes as floats.
_QUANTIZED = {"quantized": "i32(clamp(round(f32(value) * params.inverse) + params.zero, -128.0, 127.0))"}


def product(
    x: Operand,
    weights: Operand,
    weight_sums: Operand,
    planes: Planes,
    epilogue: Epilogue,
    out: Operand,
    target: Target,
    scale_count: int | None = None,
) -> Iterator[Dispatch]:
    """x [image, channel, place] by weights [channel, tap · channel of a group], padded at the end of rows.

    x that comes as floats is quantised on the way. `scale_count` channels have scales of their own, after
    which the others begin again; all of them unless it is given.
    """
    channels = planes.groups * planes.channels
    depth = planes.taps * planes.channels_in
    require(depth > 0, "a product needs something to add up", x, weights)
    require(depth <= DEPTH_MAX, f"sums over {depth} products of int8 do not fit into 32 bits", x, weights)
    fits = weights.dtype is DType.I8 and weights.rank == 2 and weights.shape[1] >= depth
    require(fits, f"weights must be i8 [{channels}, at least {depth}]", weights)
    require(weight_sums.numel >= channels, f"{channels} channels need as many sums", weight_sums)
    scale_count = scale_count or channels
    epilogue.check(channels, scale_count)
    if out.numel == 0:
        return
    is_padded = "source" not in epilogue.declarations  # the places of a transposed window lie apart
    padded = planes.padded if is_padded else planes
    packed = padded.packed
    yield pack(x, planes, padded, epilogue, packed)
    name, declarations, grid = _kernel(target, planes)
    declarations["IS_PADDED"] = is_padded
    yield Dispatch(
        kernel(name, **declarations, **epilogue.declarations, **({} if epilogue.bias else {"added": "0.0"})),
        x=packed,
        weights=_quads(weights, planes),
        weight_sums=weight_sums,
        scales=epilogue.weight_scales,
        bias=epilogue.bias,
        out=out,
        **padded.parameters(epilogue, scale_count),
        **grid,
    )


def pack(
    x: Operand,
    planes: Planes,
    padded: Planes,
    epilogue: Epilogue,
    packed: Scratch,
    declarations: Mapping[str, Any] = MappingProxyType({}),
) -> Dispatch:
    """x as words of int8, in planes that may have their padding around them."""
    is_float = x.dtype.is_float
    require(is_float or x.dtype is DType.I8, "activations must be i8, or floats to quantise", x)
    return Dispatch(
        kernel("q8_pack", **declarations, **(_QUANTIZED if is_float else {})),
        x=x,
        out=packed,
        images=planes.images,
        group_count=planes.groups,
        channels=planes.channels_in,
        height=planes.size_in[0],
        width=planes.size_in[1],
        padding_height=planes.window.padding[0] - padded.window.padding[0],
        padding_width=planes.window.padding[1] - padded.window.padding[1],
        out_height=padded.size_in[0],
        out_width=padded.size_in[1],
        inverse=1 / epilogue.x_scale if is_float else 1.0,
        zero=float(epilogue.x_zero),
        threads=packed.count,
    )


def _kernel(target: Target, planes: Planes) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """(name, declarations, grid) of the kernel that suits the sizes and the device."""
    declarations: dict[str, Any] = {
        "TAPS": planes.taps,
        "WINDOW_WIDTH": planes.window.size[1],
        "DEPTH": planes.words,
    }
    places, quads, groups = planes.places, planes.quads, planes.groups
    if target.is_cpu:
        tile = next(tile for tile in (4, 2, 1) if tile == 1 or _fits(target, planes, tile))
        return "q8_thread", declarations | {"TILE": tile}, {"threads": -(-places // tile) * quads * groups}
    if places <= PLACES_FEW:
        layout = shared_rows(target, 32, 2)
        grid = row_groups(target, layout, quads * places * groups)
        return "q8_matvec", declarations | {"Lane": "i32", **layout}, {"groups": grid}
    tall = 8 if _tiles(planes, 128) >= TILES_MANY else 4
    grid = folded(target, _tiles(planes, 16 * tall))
    return "q8_tiled", declarations | {"TALL": tall}, {"groups": grid}


def _tiles(planes: Planes, height: int) -> int:
    return -(-planes.places // 64) * -(-planes.channels // height) * planes.groups


def _fits(target: Target, planes: Planes, tile: int) -> bool:
    """Whether q8_thread takes so many places at a time: there are as many, and its loops end in time."""
    loops = planes.taps * (1 + tile + planes.words * (1 + tile)) + 6 * tile
    return planes.places >= tile and (not target.loop_max or loops <= target.loop_max)


def _quads(weights: Operand, planes: Planes) -> Weight:
    """Weights as lib/q8.wgsl reads them."""
    return weights.packed(
        *("int8 quads", planes.groups, planes.taps, planes.channels_in),
        count=planes.groups * planes.quads * planes.taps * planes.words * 4,
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
