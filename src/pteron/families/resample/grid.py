"""Sampling of planes and volumes at the points of a grid, and the points of a regular grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pteron.ops import Dispatch, LiveShape, Operand, numel, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# By the operator's numbers, for planes and for volumes.
_SAMPLES = {2: ("bilinear", "nearest", "bicubic"), 3: ("trilinear", "nearest")}
_PADDINGS = ("zeros", "border", "reflection")


def _sampled_shape(x: Operand, grid: Operand, interpolation: int, padding: int, *_: object) -> LiveShape:
    dims = x.rank - 2
    require(dims in _SAMPLES and grid.rank == x.rank, "input and grid must have four or five dims", x, grid)
    require(
        grid.shape[-1] == dims, f"the grid's last dim must be {dims}: the coordinates of a point", x, grid
    )
    require(grid.shape[0] == x.shape[0], "input and grid must have one batch", x, grid)
    require(all(size > 0 for size in x.shape[2:]), "planes and volumes must not be empty", x, grid)
    _require_known("interpolation_mode", interpolation, _SAMPLES[dims])
    _require_known("padding_mode", padding, _PADDINGS)
    return (*x.shape[:2], *grid.shape[1:-1])


def _require_known(name: str, number: int, known: Sequence[str]) -> None:
    numbered = ", ".join(f"{index} ({mode})" for index, mode in enumerate(known))
    require(0 <= number < len(known), f"{name} is one of {numbered}, not {number}")


_ARGUMENTS = "input grid interpolation_mode:int padding_mode:int align_corners:bool"


@op("aten.grid_sampler_2d.default", f"{_ARGUMENTS} -> out", shape=_sampled_shape)
@op("aten.grid_sampler_3d.default", f"{_ARGUMENTS} -> out", shape=_sampled_shape)
def grid_sampler(
    x: Operand, grid: Operand, interpolation_mode: int, padding_mode: int, align_corners: bool, out: Operand
) -> Iterator[Dispatch]:
    dims = x.rank - 2
    interpolation, padding = _SAMPLES[dims][interpolation_mode], _PADDINGS[padding_mode]
    sizes: dict[str, Any] = dict(zip(("depth", "height", "width")[-dims:], x.shape[2:], strict=True))
    yield Dispatch(
        kernel(f"grid_sampler_{dims}d"),
        IS_NEAREST=interpolation == "nearest",
        IS_BICUBIC=True if interpolation == "bicubic" else None,
        ALIGNS_CORNERS=align_corners,
        IS_BORDER=padding == "border",
        IS_REFLECTED=padding == "reflection",
        x=x,
        grid=grid,
        out=out,
        batch=x.shape[0],
        channels=x.shape[1],
        **sizes,
        places=numel(out.shape[2:]),
        threads=out.numel,
    )


def _priors_shape(x: Operand, stride: int, offset: float) -> LiveShape:
    require(x.rank >= 2, "grid_priors takes two dims or more", x)
    return (x.shape[-2] * x.shape[-1], 2)


@op("et_vk.grid_priors.default", "self stride:int offset:float -> out", shape=_priors_shape)
def grid_priors(x: Operand, stride: int, offset: float, out: Operand) -> Iterator[Dispatch]:
    yield Dispatch(
        kernel("grid_priors"),
        out=out,
        count=out.numel,
        width=x.shape[-1],
        stride=float(stride),
        offset=offset,
        threads=out.numel,
    )
