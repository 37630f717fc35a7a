"""Convolutions from uniform arrays (convolution_uniform.wgsl), the fastest loads on software adapters: how
channels, filters and rows of pixels are split into launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

from pteron.dtypes import Storage
from pteron.families.convolution.geometry import Geometry
from pteron.ops import AnyInt, Operand, OperandSlice, Target, Weight

WIDE, FILTERS = 4, 16  # pixels and filters of an invocation; the former is a constant of the kernels
WORKGROUP = 8  # invocations, with the same filters; a constant of convolution_uniform.wgsl
_QUADS = {"use_convolution_store": "convolution_store_quads"}
PLACES = "abcd"  # arrays of one launch
SEEN_MAX = 32  # elements of a row of the source that an invocation of a depthwise convolution keeps
LAUNCHES_MAX = 512  # with more, planning costs more than it saves
MERGE_TERMS = 50  # that take as long as a part's sum takes to be stored and merged


@dataclass(frozen=True, slots=True)
class Cut:
    """A launch takes `arrays` times `channels` channels of one image, `filters` filters, and the pixels that
    see `rows` rows of the image."""

    sizes: Geometry
    arrays: int
    channels: AnyInt
    filters: AnyInt
    rows: AnyInt

    @property
    def parts(self) -> AnyInt:
        return -(-self.sizes.channels // (self.arrays * self.channels))

    @property
    def out_rows(self) -> AnyInt:
        """Rows of pixels of a launch."""
        window, out_height = self.sizes.window, self.sizes.out_plane[0]
        if self.rows == self.sizes.plane[0]:
            return out_height
        seen = window.dilation[0] * (window.size[0] - 1) + 1  # by one row of pixels
        return max(0, min(out_height, (self.rows - seen) // window.stride[0] + 1))

    @property
    def count(self) -> AnyInt:
        bands, blocks = -(-self.sizes.out_plane[0] // self.out_rows), -(-self.sizes.filters // self.filters)
        return self.sizes.batch * self.parts * blocks * bands

    @property
    def cost(self) -> tuple[AnyInt, AnyInt]:
        """Terms of an output, with those that merging takes the time of; launches."""
        terms = self.parts * self.arrays * self.channels * self.sizes.taps
        return terms + (self.parts > 1) * self.parts * MERGE_TERMS, self.count

    @property
    def declarations(self) -> dict[str, Any]:
        absent = PLACES[self.arrays :]
        return {
            "FILTERS": FILTERS,
            "ARRAYS": self.arrays,
            "CHANNELS": self.channels,
            "PLANE": self.rows * self.sizes.plane[1],
            "FILTER_QUADS": self.filters // 4,
            "TAPS": self.sizes.taps,
            **(_QUADS if self._are_quads else {}),
            **{f"{kind}_{place}": "0.0" for kind in ("value", "weight") for place in absent},
        }

    @property
    def _are_quads(self) -> bool:
        """Whether the pixels of every launch are multiples of four."""
        height, width = self.sizes.out_plane
        return width % 4 == 0 or (self.out_rows == height and height * width % 4 == 0)

    @property
    def launches(self) -> Iterator[tuple[int, int, int, int]]:
        """(image, part, first filter, first row of pixels) of each launch."""
        sizes = self.sizes
        filters = range(0, sizes.filters, self.filters)
        return product(
            range(sizes.batch), range(self.parts), filters, range(0, sizes.out_plane[0], self.out_rows)
        )

    def arguments(self, x: Operand, weight: Operand, launch: tuple[int, int, int, int]) -> dict[str, Any]:
        """What a launch binds, its parameters and grid. An array that would end past the last channel, or the
        last row, begins earlier."""
        image, part, first_filter, first_pixels = launch
        (height, width), (out_height, out_width) = self.sizes.plane, self.sizes.out_plane
        window = self.sizes.window
        first_row: AnyInt = max(0, first_pixels * window.stride[0] - window.padding[0])
        first_row = min(first_row, height - self.rows)
        pixels = min(self.out_rows, out_height - first_pixels) * out_width
        made: dict[str, Any] = {
            "image": image,
            "part": part,
            "first_filter": first_filter,
            "first_row": first_row,
            "first_pixel": first_pixels * out_width,
            "pixels": pixels,
            "threads": -(-pixels // (WORKGROUP * WIDE)) * WORKGROUP * (self.filters // FILTERS),
        }
        for index, place in enumerate(PLACES[: self.arrays]):
            first = (part * self.arrays + index) * self.channels
            start = min(first, self.sizes.channels - self.channels)
            row = (image * self.sizes.channels + start) * height + first_row
            made[f"source_{place}"] = OperandSlice(x, row * width)
            made[f"weights_{place}"] = weight.packed(
                *("convolution array", first, self.channels, first_filter, self.filters),
                count=self.channels * self.sizes.taps * self.filters,
                storage=Storage.F32,
            )
        return made


def depthwise(
    target: Target, x: Operand, weight: Operand, sizes: Geometry
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]] | None:
    """(declarations, arguments) of the launches of a convolution of groups with one channel each, for
    convolution_depthwise_uniform; None if that cannot run."""
    if not target.is_cpu:
        return None
    plane, floats = int(sizes.plane[0] * sizes.plane[1]), target.uniform_bytes_max // 4  # an array's size
    alignment = target.uniform_alignment // 4
    unit = alignment // gcd(plane, alignment)
    most = min(floats // plane, floats // (sizes.filters * sizes.taps), sizes.groups)
    if most < sizes.groups or sizes.batch > 1:
        most = most // unit * unit
    is_aligned = sizes.groups % unit == 0 or (most == sizes.groups and sizes.batch == 1)
    window = sizes.window
    seen = (WIDE - 1) * window.stride[1] + (window.size[1] - 1) * window.dilation[1] + 1
    if not (most and is_aligned and seen <= SEEN_MAX):
        return None
    if sizes.transposed or sizes.groups * plane % 4 or not _is_plain(x, weight):
        return None
    return _depthwise_launches(x, weight, sizes, most)


def _depthwise_launches(
    x: Operand, weight: Operand, sizes: Geometry, most: AnyInt
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    plane, (out_height, out_width) = sizes.plane[0] * sizes.plane[1], sizes.out_plane
    window = sizes.window
    taps = dict(zip(("TAPS_Y", "TAPS_X"), window.size, strict=True))
    steps = {"STRIDE": window.stride[1], "DILATION": window.dilation[1]}
    for image, first in product(range(sizes.batch), range(0, sizes.groups, most)):
        channels = min(most, sizes.groups - first)
        filters = channels * sizes.filters
        weights = weight.packed(
            *("convolution rows of channels", first * sizes.filters, filters),
            count=-(-filters * sizes.taps // 4) * 4,
            storage=Storage.F32,
        )
        yield (
            {
                "CHANNELS": channels,
                "PLANE": plane,
                "FILTERS": filters,
                **taps,
                **steps,
                **(_QUADS if out_width % 4 == 0 else {}),
            },
            {
                "image": image,
                "first_filter": first * sizes.filters,
                "pixels": out_height * out_width,
                "source_a": OperandSlice(x, (image * sizes.groups + first) * plane),
                "weights_a": weights,
                "threads": -(-out_width // WIDE) * out_height * filters,
            },
        )


def _is_plain(x: Operand, weight: Operand) -> bool:
    """Whether x is f32, and only the weight is a constant."""
    is_constant = isinstance(weight.buffer, Weight) and not isinstance(x.buffer, Weight)
    return is_constant and x.storage is Storage.F32


def choose(target: Target, x: Operand, weight: Operand, sizes: Geometry) -> Cut | None:
    """How to split a convolution for a software adapter; None if convolution_uniform cannot run."""
    suits = target.is_cpu and target.broadcasts and sizes.groups == 1 and not sizes.transposed
    if not suits or not _is_plain(x, weight):
        return None
    cuts = [cut for arrays in range(1, 5) if (cut := _cut(target, sizes, arrays)) and cut.out_rows]
    best = min(cuts, key=lambda cut: cut.cost, default=None)
    return best if best and best.count <= LAUNCHES_MAX else None


def _cut(target: Target, sizes: Geometry, arrays: int) -> Cut | None:
    """As many channels as fit each of these arrays, or some rows of one channel."""
    (height, width), floats = sizes.plane, target.uniform_bytes_max // 4
    alignment = target.uniform_alignment // 4
    rows, unit = height, alignment // gcd(height * width, alignment)  # channels from one start to the next
    fitting = floats // (FILTERS * sizes.taps)  # channels whose weights fit, for FILTERS filters
    most = min(floats // (height * width), fitting)
    if most == 0 and fitting and width % alignment == 0:
        rows, unit, most = floats // width, 1, 1
    parts = -(-sizes.channels // (arrays * most)) if most else 0
    channels = -(-sizes.channels // (arrays * parts)) if parts else 0
    if channels < sizes.channels:
        channels = -(-channels // unit) * unit
    is_whole = channels == sizes.channels and sizes.batch == 1
    is_aligned = (is_whole or sizes.channels % unit == 0) and channels * rows * width % 4 == 0
    if not 0 < channels <= min(most, sizes.channels) or not is_aligned:
        return None
    blocks, room = -(-sizes.filters // FILTERS), floats // (channels * sizes.taps * FILTERS)
    filters = FILTERS * -(-blocks // -(-blocks // room))
    return Cut(sizes, arrays, channels, filters, rows)
