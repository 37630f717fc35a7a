"""Windows that slide over planes, as convolutions and pools use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pteron.ops.live import AnyInt
from pteron.ops.requirement import require

Pair: TypeAlias = tuple[int, int]  # along a plane's height, along its width
LivePair: TypeAlias = tuple[AnyInt, AnyInt]
_COUNT_MAX = 1 << 31  # kernels count in 32 bits; positions before a plane wrap around


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The place (y, x) of a window covers the elements y · stride + i · dilation - padding, i < size."""

    size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @classmethod
    def of(
        cls,
        size: Sequence[AnyInt],
        stride: Sequence[AnyInt] = (),
        padding: Sequence[AnyInt] = (0, 0),
        dilation: Sequence[AnyInt] = (1, 1),
    ) -> SlidingWindow:
        """A window by an operator's lists: one number is for both dims, no stride means the size."""
        window = cls(
            _pair("a window", size),
            _pair("stride", stride or size),
            _pair("padding", padding),
            _pair("dilation", dilation),
        )
        require(min(window.size + window.stride + window.dilation) > 0, f"{window} must be positive")
        require(min(window.padding) >= 0, f"padding {list(padding)} must not be negative")
        return window

    @property
    def reach(self) -> Pair:
        """Elements from a window's first to its last, both counted."""
        height, width = (
            (size - 1) * dilation + 1 for size, dilation in zip(self.size, self.dilation, strict=True)
        )
        return height, width

    def places(
        self, plane: Sequence[AnyInt], *, ceil: bool = False, excess: Sequence[AnyInt] = (0, 0)
    ) -> LivePair:
        """The number of window positions on a plane. With `ceil`, also those that only start on it. `excess`
        is by how much the padding at the plane's ends exceeds that at its starts."""
        self._require_countable([size + max(0, more) for size, more in zip(plane, excess, strict=True)])
        height, width = (
            _places(*along, ceil=ceil)
            for along in zip(plane, self.reach, self.stride, self.padding, excess, strict=True)
        )
        more = f", with {list(excess)} more padding at its ends" if any(excess) else ""
        require(height >= 0 and width >= 0, f"{self} does not fit a plane of {list(plane)}{more}")
        return height, width

    def spread(self, plane: Sequence[AnyInt], output_padding: Sequence[AnyInt]) -> LivePair:
        """The output plane of a transposed convolution: all windows placed at the elements of `plane`, plus
        `output_padding` at its ends."""
        self._require_countable([size * step for size, step in zip(plane, self.stride, strict=True)])
        more = _pair("output_padding", output_padding)
        steps = zip(more, self.stride, self.dilation, strict=True)
        fits = all(0 <= extra < max(stride, dilation) for extra, stride, dilation in steps)
        require(fits, f"output_padding {list(more)} must be below the stride or the dilation, {self}")
        height, width = (
            (size - 1) * stride - 2 * padding + reach + extra
            for size, stride, padding, reach, extra in zip(
                plane, self.stride, self.padding, self.reach, more, strict=True
            )
        )
        require(height >= 0 and width >= 0, f"{self} leaves nothing of a plane of {list(plane)}")
        return height, width

    def _require_countable(self, plane: Sequence[AnyInt]) -> None:
        along = zip(plane, self.reach, self.stride, self.padding, strict=True)
        fits = all(size + reach + stride + 2 * padding < _COUNT_MAX for size, reach, stride, padding in along)
        require(fits, f"{self} reaches too far on a plane of {list(plane)}")

    @property
    def parameters(self) -> dict[str, int]:
        """The window as members of a kernel's Params."""
        names = {
            "window": self.size,
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
        }
        return {
            f"{name}_{along}": number
            for name, pair in names.items()
            for along, number in zip(("height", "width"), pair, strict=True)
        }

    def __str__(self) -> str:
        return (
            f"a window of {list(self.size)} with stride {list(self.stride)}, padding {list(self.padding)} "
            f"and dilation {list(self.dilation)}"
        )


def _pair(what: str, numbers: Sequence[AnyInt]) -> Pair:
    require(len(numbers) in (1, 2), f"{what} {list(numbers)} must be one number or two")
    return int(numbers[0]), int(numbers[-1])


def _places(plane: AnyInt, reach: int, stride: int, padding: int, excess: AnyInt, *, ceil: bool) -> AnyInt:
    room = plane + 2 * padding + excess - reach + (stride - 1 if ceil else 0)
    places = room // stride + 1 if room >= 0 else -1
    # A place counts only where it begins on the plane or on the padding before it.
    return places - 1 if ceil and (places - 1) * stride >= plane + padding else places
