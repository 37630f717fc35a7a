"""The sizes of a convolution, however many dims it runs over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pteron.ops import AnyInt, LiveShape, Operand, require
from pteron.ops.operand import HostArray, packing
from pteron.ops.window import LivePair, SlidingWindow


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution over planes; one over a single dim has planes of height 1."""

    window: SlidingWindow
    transposed: bool
    batch: AnyInt
    groups: int
    channels: AnyInt  # of the input, in a group
    filters: AnyInt  # channels of the output, in a group
    plane: LivePair  # of the input
    out_plane: LivePair

    @property
    def taps(self) -> int:
        height, width = self.window.size
        return height * width

    @property
    def quads(self) -> AnyInt:
        """Quads of a group's channels. All but a few channels are padded to whole steps of a tiled kernel."""
        quads = -(-self.channels // 4)
        return quads if quads <= 2 else -(-quads // 4) * 4

    @property
    def filter_quads(self) -> AnyInt:
        return -(-self.filters // 4)

    @property
    def terms(self) -> AnyInt:
        """Products that an output is the sum of."""
        return self.taps * self.channels

    @property
    def depth(self) -> AnyInt:
        """Terms with channels padded to quads."""
        return self.taps * self.quads * 4

    @property
    def rows(self) -> AnyInt:
        return self.groups * self.filters

    @property
    def pixels(self) -> AnyInt:
        """Places of the output, in all images of the batch."""
        height, width = self.out_plane
        return self.batch * height * width

    @property
    def parameters(self) -> dict[str, AnyInt | float]:
        """The members of a kernel's Params that these sizes decide."""
        return self.window.parameters | {
            "batch": self.batch,
            "group_count": self.groups,
            "channels": self.channels,
            "quads": self.quads,
            "filters": self.filters,
            "filter_quads": self.filter_quads,
            "height": self.plane[0],
            "width": self.plane[1],
            "out_height": self.out_plane[0],
            "out_width": self.out_plane[1],
            "quads_reciprocal": 1 / max(self.quads, 1),
            "width_reciprocal": 1 / self.window.size[1],
        }


def geometry(
    x: Operand,
    weight: Operand,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: AnyInt,
    excess: Sequence[int] = (),
) -> Geometry:
    """The sizes by the operator's arguments, which must agree. `excess` is by how much the padding at the end
    of each dim exceeds that at its start."""
    groups = int(groups)
    flat = x.rank == 3
    require(x.rank in (3, 4), "a convolution takes an input [n, c, w] or [n, c, h, w]", x, weight)
    require(weight.rank == x.rank, "input and weight must have the same rank", x, weight)
    require(groups > 0 and weight.shape[0] % groups == 0, f"weight must have {groups} groups", weight)
    inputs = weight.shape[0] if transposed else weight.shape[1] * groups
    require(x.shape[1] == inputs, f"the weight takes {inputs} channels", x, weight)
    window = SlidingWindow.of(
        _lift(weight.shape[2:], 1, flat),
        _lift(stride, 1, flat),
        _lift(padding, 0, flat),
        _lift(dilation, 1, flat),
    )
    height, width = plane = _lift(x.shape[2:], 1, flat)
    extra, more = _lift(output_padding, 0, flat), _lift(excess or (0,) * (x.rank - 2), 0, flat)
    return Geometry(
        window,
        transposed,
        batch=x.shape[0],
        groups=groups,
        channels=x.shape[1] // groups,
        filters=weight.shape[1] if transposed else weight.shape[0] // groups,
        plane=(height, width),
        out_plane=window.spread(plane, extra) if transposed else window.places(plane, excess=more),
    )


def out_shape(sizes: Geometry, rank: int) -> LiveShape:
    """The output's shape; the planes of a convolution over one dim have no height."""
    return (sizes.batch, sizes.rows, *sizes.out_plane[4 - rank :])


def volume_shape(
    x: Operand,
    weight: Operand,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: AnyInt,
) -> LiveShape:
    """The output's shape of a convolution over [n, c, d, h, w]."""
    require(weight.rank == 5, "input and weight must have the same rank", x, weight)

    def without(dim: int) -> LiveShape:
        """The output's shape of the convolution over the planes that the other two dims are."""
        axes = [axis for axis in range(3) if axis != dim]
        kept = [0, 1, *(axis + 2 for axis in axes)]
        step, border, spread, extra = (
            [int(numbers[axis]) for axis in axes] for numbers in (stride, padding, dilation, output_padding)
        )
        image, filters = (operand.reshaped(tuple(operand.shape[d] for d in kept)) for operand in (x, weight))
        return out_shape(geometry(image, filters, step, border, spread, transposed, extra, groups), 4)

    return (*without(2)[:3], *without(0)[2:])


def _lift(numbers: Sequence[AnyInt], neutral: int, flat: bool) -> LiveShape:
    """Numbers of a convolution over one dim as those of one over planes."""
    return (neutral, *numbers) if flat else tuple(numbers)


def by_group(weight: HostArray, groups: int, transposed: bool) -> HostArray:
    """[group][filter][channel][tap] of weights [filter][channel], transposed ones [channel][filter]."""
    taps = int(np.prod(weight.shape[2:]))
    grouped = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], taps)
    return grouped.swapaxes(1, 2) if transposed else grouped


@packing("convolution quads")
def in_quads(weight: HostArray, groups: int, transposed: int, quads: int, storage: str) -> HostArray:
    """[group][tap][channel][filter], padded with zeros: channels to `quads` quads, filters to whole quads."""
    grouped = by_group(weight, groups, bool(transposed)).transpose(0, 3, 2, 1)
    padding = [(0, 0), (0, 0), (0, 4 * quads - grouped.shape[2]), (0, -grouped.shape[3] % 4)]
    return np.pad(grouped, padding).astype(storage)


@packing("convolution filters")
def in_filters(weight: HostArray, groups: int, transposed: int, quads: int, storage: str) -> HostArray:
    """[group][filter][tap][channel], channels padded to `quads` quads with zeros."""
    grouped = by_group(weight, groups, bool(transposed)).transpose(0, 1, 3, 2)
    padding = [(0, 0), (0, 0), (0, 0), (0, 4 * quads - grouped.shape[3])]
    return np.pad(grouped, padding).astype(storage)


@packing("convolution array")
def in_uniform_array(
    weight: HostArray, first: int, channels: int, first_filter: int, filters: int, room: int
) -> HostArray:
    """[tap][channel][filter] of some channels and filters, then zeros up to `room` floats. If they end past
    the last channel, the array begins earlier and has zeros there, as it has for filters past the last."""
    taps = by_group(weight, 1, False)[0].transpose(2, 1, 0)[:, :, first_filter : first_filter + filters]
    made = np.zeros((len(taps), channels, filters), np.float32)
    start, end = min(first, taps.shape[1] - channels), min(first + channels, taps.shape[1])
    if first < end:
        made[:, first - start : end - start, : taps.shape[2]] = taps[:, first:end]
    return np.pad(made.reshape(-1), (0, room - made.size))


@packing("convolution rows of channels")
def in_rows_of_channels(weight: HostArray, first: int, filters: int, room: int) -> HostArray:
    """[filter][tap] of some filters with one channel each, then zeros up to `room` floats."""
    rows = weight[first : first + filters].reshape(-1).astype(np.float32)
    return np.pad(rows, (0, room - len(rows)))


@packing("convolution rows")
def in_rows(weight: HostArray, groups: int, transposed: int, quads: int, storage: str) -> HostArray:
    """[group][filter][tap][channel], as they are."""
    grouped = by_group(weight, groups, bool(transposed)).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(grouped).astype(storage)
