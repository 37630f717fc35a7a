"""What products of int8 are made of: planes and windows on them, and how sums become outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pteron.dtypes import Storage
from pteron.families.quantized.affine import reciprocal
from pteron.ops import AnyInt, Operand, Scratch, require
from pteron.ops.window import Pair, Window

ACTIVATIONS: dict[str, dict[str, str]] = {"none": {}, "relu": {"activation": "max(value, 0.0)"}}


@dataclass(frozen=True, slots=True)
class Epilogue:
    """How exact sums become outputs."""

    weight_scales: Operand
    bias: Operand | None
    x_scale: float
    x_zero: int
    out_inverse: float
    out_zero: int
    declarations: Mapping[str, str]

    def check(self, channels: int, scale_count: int) -> None:
        is_int8 = -128 <= self.x_zero <= 127
        require(is_int8, f"the zero point {self.x_zero} of int8 activations must lie within -128 and 127")
        enough = self.weight_scales.numel >= scale_count
        require(enough, f"{scale_count} channels need as many scales", self.weight_scales)
        require(
            self.bias is None or self.bias.numel >= channels,
            f"bias must have {channels} values, one per channel",
            self.bias,
        )


def to_int8(
    weight_scales: Operand,
    bias: Operand | None,
    x_scale: float,
    x_zero: AnyInt,
    out_scale: float,
    out_zero: AnyInt,
    activation: str,
    declarations: Mapping[str, str] = MappingProxyType({}),
) -> Epilogue:
    """Outputs quantised to int8, after an activation; further declarations are the kernel's."""
    known = ", ".join(ACTIVATIONS)
    require(activation in ACTIVATIONS, f"activation {activation!r} must be one of {known}")
    after = {**ACTIVATIONS[activation], **declarations}
    return Epilogue(weight_scales, bias, x_scale, int(x_zero), reciprocal(out_scale), int(out_zero), after)


@dataclass(frozen=True, slots=True)
class Planes:
    """A convolution's sizes: images of planes, in groups of channels that see each other."""

    images: int
    groups: int
    channels_in: int  # of one group
    channels: int  # of the output, of one group
    size_in: Pair
    size: Pair
    window: Window

    @property
    def taps(self) -> int:
        return self.window.size[0] * self.window.size[1]

    @property
    def words(self) -> int:
        """Words of one tap."""
        return -(-self.channels_in // 4)

    @property
    def quads(self) -> int:
        return -(-self.channels // 4)

    @property
    def places(self) -> int:
        """Of the output, all images counted."""
        return self.images * self.size[0] * self.size[1]

    @property
    def padded(self) -> Planes:
        """The same with the padding as part of the input."""
        height, width = (
            size + 2 * padding for size, padding in zip(self.size_in, self.window.padding, strict=True)
        )
        return replace(self, size_in=(height, width), window=replace(self.window, padding=(0, 0)))

    @property
    def packed(self) -> Scratch:
        """Room for the input, four channels to a word."""
        places = self.images * self.size_in[0] * self.size_in[1]
        return Scratch(places * self.groups * self.words, Storage.U32)

    def parameters(self, epilogue: Epilogue, scale_count: int) -> dict[str, Any]:
        """The Params of lib/q8_result.wgsl."""
        window = {
            name: number for name, number in self.window.parameters.items() if not name.startswith("window")
        }
        return window | {
            "places": self.places,
            "plane": self.size[0] * self.size[1],
            "channels": self.channels,
            "group_count": self.groups,
            "scale_count": scale_count,
            "out_width": self.size[1],
            "height": self.size_in[0],
            "width": self.size_in[1],
            "x_zero": epilogue.x_zero,
            "x_scale": epilogue.x_scale,
            "out_inverse": epilogue.out_inverse,
            "out_zero": float(epilogue.out_zero),
        }
