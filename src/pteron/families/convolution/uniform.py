"""Convolutions from uniform arrays (convolution_uniform.wgsl), the fastest loads on software adapters: how
channels, filters and rows of pixels are split into launches. Sizes of the image are parameters: kernels
differ in the room of their arrays only, a power of two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from pteron.dtypes import Storage
from pteron.families.convolution.geometry import Geometry
from pteron.ops import AnyInt, LiveInt, Operand, OperandSlice, Target, Weight, bucket, divides, parts_of
from pteron.ops.uniform_arrays import ROOM_MIN, Cut, room
from pteron.ops.window import LivePair

WIDE, FILTERS = 4, 16  # pixels and filters of an invocation; the former is a constant of the kernels
WORKGROUP = 8  # invocations, with the same filters; a constant of convolution_uniform.wgsl
PLACES = "abcd"  # arrays of one launch
SEEN_MAX = 32  # elements of a row of the source that an invocation of a depthwise convolution keeps
LAUNCHES_MAX = 512  # with more, planning costs more than it saves
MERGE_TERMS = 50  # that take as long as a part's sum takes to be stored and merged
# The parameters of launches, where there are no uniform arrays.
_NUMBERS = "image part first_filter first_row first_pixel pixels array_channels array_plane array_filters"
NO_ARRAYS: dict[str, Any] = {**dict.fromkeys(_NUMBERS.split(), 0), "shifts": [0] * 4}
Part = tuple[int, AnyInt]  # a number, and whether there is that part (`parts_of`)


@dataclass(frozen=True, slots=True)
class Arrays:
    """Uniform arrays of planes: how many whole planes fit, and where they begin."""

    plane: AnyInt  # elements
    reach: int  # of the largest plane that the plan is for
    floats: int  # of the largest array
    alignment: int

    @classmethod
    def of(cls, plane: LivePair, target: Target) -> Arrays:
        size, reach = plane[0] * plane[1], 0
        floats, alignment = target.uniform_bytes_max // 4, target.uniform_alignment // 4
        if isinstance(size, LiveInt):
            largest = floats - alignment + 1
            if size > largest:  # then bands of rows fit
                reach = floats + 1
            else:
                reach = largest if size > floats // 2 else bucket(size, 4 * ROOM_MIN)
        return cls(size, reach or int(size), floats, alignment)

    @property
    def planes(self) -> int:
        """That fit an array."""
        return (self.floats - self._lost) // self.reach

    def room(self, planes: int) -> int:
        """Vec4s of an array with this number of planes."""
        return room(-(-min(planes * self.reach + self._lost, self.floats) // 4))

    def slice(self, x: Operand, first: AnyInt) -> tuple[OperandSlice, AnyInt]:
        """x from the last place before an element where an array may begin, and how far that is."""
        shift = first % self.alignment
        return OperandSlice(x, first - shift), shift

    @property
    def _lost(self) -> int:
        return 0 if divides(self.alignment, self.plane) else self.alignment - 1


@dataclass(frozen=True, slots=True)
class UniformConvolution:
    """A launch takes some channels of one image, some filters, and the pixels that see `rows` rows of it."""

    sizes: Geometry
    arrays: Arrays
    channels: Cut
    filters: Cut  # in blocks of FILTERS
    rows: AnyInt
    bands: tuple[Part, ...]  # of pixels

    @property
    def parts(self) -> int:
        return self.channels.launches

    @property
    def out_rows(self) -> AnyInt:
        """Rows of pixels of a launch."""
        return _out_rows(self.sizes, self.rows)

    @property
    def launch_count(self) -> int:
        return len(list(self.launches))

    @property
    def cost(self) -> tuple[int, int]:
        """Terms of an output, with those that merging takes the time of; launches."""
        terms = self.parts * self.channels.arrays * self.channels.piece * self.sizes.taps
        return terms + (self.parts > 1) * self.parts * MERGE_TERMS, self.launch_count

    @property
    def overrides(self) -> dict[str, Any]:
        is_whole = len(self.bands) == 1
        return {
            "FILTERS": FILTERS,
            "ARRAYS": self.channels.arrays,
            "ROOM": self.arrays.room(self.channels.piece) if is_whole else self.arrays.floats // 4,
            "WEIGHTS_ROOM": self._weights // 4,
            "BY_QUADS": self._are_quads,
        }

    @property
    def _weights(self) -> int:
        """Floats of an array of weights."""
        return 4 * room(self.channels.piece * self.sizes.taps * (FILTERS // 4) * self.filters.piece)

    @property
    def _are_quads(self) -> bool:
        """Whether the pixels of every launch are multiples of four."""
        height, width = self.sizes.out_plane
        return width % 4 == 0 or (len(self.bands) == 1 and divides(4, height * width))

    @property
    def launches(self) -> Iterator[tuple[Part, int, int, Part]]:
        """(image, part, first block of filters, band of pixels) of each launch."""
        return product(parts_of(self.sizes.batch, 1), range(self.parts), self.filters.firsts, self.bands)

    def arguments(self, x: Operand, weight: Operand, launch: tuple[Part, int, int, Part]) -> dict[str, Any]:
        """What a launch binds, its parameters and grid. An array that would end past the last channel begins
        earlier."""
        (image, has_image), part, block, (band, has_band) = launch
        (_, width), (_, out_width), plane = self.sizes.plane, self.sizes.out_plane, self.arrays.plane
        window, channels, each = self.sizes.window, int(self.sizes.channels), self.channels.piece
        first_filter, filters = FILTERS * block, FILTERS * self.filters.piece
        first_pixels = band * self.out_rows
        first_row = max(0, first_pixels * window.stride[0] - window.padding[0])
        pixels = self.out_rows * out_width
        made: dict[str, Any] = {
            "image": image,
            "part": part,
            "first_filter": first_filter,
            "first_row": first_row,
            "first_pixel": first_pixels * out_width,
            "pixels": pixels,
            "array_channels": each,
            "array_plane": self.rows * width,
            "array_filters": filters,
            "shifts": [0] * 4,
            "threads": -(-pixels // (WORKGROUP * WIDE))
            * (WORKGROUP * self.filters.piece * has_image * has_band),
        }
        for index, first in enumerate(self.channels.places(self.channels.firsts[part])):
            begin = (image * channels + min(first, channels - each)) * plane + first_row * width
            made[f"source_{PLACES[index]}"], made["shifts"][index] = self.arrays.slice(x, begin)
            made[f"weights_{PLACES[index]}"] = weight.packed(
                *("convolution array", first, each, first_filter, filters, self._weights),
                count=self._weights,
                storage=Storage.F32,
            )
        return made


def _widest(width: AnyInt) -> int:
    """The largest width that bands are the same for: a quarter of the way between powers of two. Bands have a
    plain number of rows, so that their places are multiples of the width."""
    if not isinstance(width, LiveInt):
        return width
    step = bucket(width, 8) // 8
    return next(step * parts for parts in range(4, 9) if width <= step * parts)


def _out_rows(sizes: Geometry, rows: AnyInt) -> AnyInt:
    """Rows of pixels that see no others than some rows of the image."""
    window, (out_height, _) = sizes.window, sizes.out_plane
    if rows is sizes.plane[0]:
        return out_height
    seen = window.dilation[0] * (window.size[0] - 1) + 1  # by one row of pixels
    return max(0, min(out_height, (rows - seen) // window.stride[0] + 1))


def depthwise(
    target: Target, x: Operand, weight: Operand, sizes: Geometry
) -> Iterator[dict[str, Any]] | None:
    """Arguments of the launches of a convolution of groups with one channel each, for
    convolution_depthwise_uniform; None if that cannot run."""
    window = sizes.window
    seen = (WIDE - 1) * window.stride[1] + (window.size[1] - 1) * window.dilation[1] + 1
    if sizes.transposed or seen > SEEN_MAX or not _is_plain(x, weight):
        return None
    arrays = Arrays.of(sizes.plane, target)
    most = min(arrays.planes, arrays.floats // (int(sizes.filters) * sizes.taps), sizes.groups)
    return _depthwise_launches(x, weight, sizes, arrays, most) if most else None


def _depthwise_launches(
    x: Operand, weight: Operand, sizes: Geometry, arrays: Arrays, most: int
) -> Iterator[dict[str, Any]]:
    (out_height, out_width), window = sizes.out_plane, sizes.window
    weights = 4 * room(-(-most * int(sizes.filters) * sizes.taps // 4))
    overrides = {
        **dict(zip(("TAPS_Y", "TAPS_X"), window.size, strict=True)),
        "STRIDE": window.stride[1],
        "DILATION": window.dilation[1],
        "ROOM": arrays.room(most),
        "WEIGHTS_ROOM": weights // 4,
        "BY_QUADS": divides(4, out_width),
    }
    for (image, has_image), first in product(parts_of(sizes.batch, 1), Cut(sizes.groups, most).firsts):
        channels = min(most, sizes.groups - first)
        filters = channels * int(sizes.filters)
        source, shift = arrays.slice(x, (image * sizes.groups + first) * arrays.plane)
        yield {
            **overrides,
            "image": image,
            "first_filter": first * sizes.filters,
            "pixels": out_height * out_width,
            "array_channels": channels,
            "array_plane": arrays.plane,
            "array_filters": filters,
            "shifts": [shift, 0, 0, 0],
            "source_a": source,
            "weights_a": weight.packed(
                *("convolution rows of channels", first * sizes.filters, filters, weights),
                count=weights,
                storage=Storage.F32,
            ),
            "threads": -(-out_width // WIDE) * out_height * (filters * has_image),
        }


def _is_plain(x: Operand, weight: Operand) -> bool:
    """Whether x is f32 in memory with slack, and the weight is a constant."""
    return isinstance(weight.buffer, Weight) and x.has_slack and x.storage is Storage.F32


def choose(target: Target, x: Operand, weight: Operand, sizes: Geometry) -> UniformConvolution | None:
    """How to split a convolution for a software adapter; None if convolution_uniform cannot run."""
    suits = target.has_uniform_arrays and sizes.groups == 1 and not sizes.transposed
    if not suits or not _is_plain(x, weight):
        return None
    arrays = Arrays.of(sizes.plane, target)
    made = [each for count in range(1, 5) if (each := _with_arrays(arrays, sizes, count))]
    best = min(made, key=lambda each: each.cost, default=None)
    return best if best and best.launch_count <= LAUNCHES_MAX else None


def _with_arrays(arrays: Arrays, sizes: Geometry, count: int) -> UniformConvolution | None:
    """As many channels as fit each of these arrays, or some rows of one channel."""
    height, width = sizes.plane
    fitting = arrays.floats // (FILTERS * sizes.taps)  # channels whose weights fit, for FILTERS filters
    rows, most = height, min(arrays.planes, fitting)
    bands: tuple[Part, ...] = ((0, 1),)
    if most == 0 and fitting:
        rows, most = (arrays.floats - arrays.alignment + 1) // _widest(width), 1
        out_rows = _out_rows(sizes, rows)
        if out_rows == 0:
            return None
        # A band begins before the last row: sizes with other numbers of bands get plans of their own.
        bands = tuple((band, 1) for band in range(int(-(-sizes.out_plane[0] // out_rows))))
    if most == 0:
        return None
    channels = Cut.of(int(sizes.channels), most, count)
    fit = arrays.floats // (channels.piece * sizes.taps * FILTERS)
    filters = Cut.of(-(-int(sizes.filters) // FILTERS), fit)
    return UniformConvolution(sizes, arrays, channels, filters, rows, bands)
