"""Sampling of planes and volumes at the points of a grid, and the points of a regular grid."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import Dispatch, Operand, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

_SAMPLES = ("bilinear", "nearest", "bicubic")  # by the operator's numbers
_PADDINGS = ("zeros", "border", "reflection")
# A coordinate in [-1, 1] as an index: -1 and 1 are the centres of the first and last element, or their edges.
_ELEMENTS = {
    True: "(coordinate + 1.0) * 0.5 * (size - 1.0)",
    False: "((coordinate + 1.0) * size - 1.0) * 0.5",
}
_ONTO_PLANE = {
    ("border", True): "within(position, size)",
    ("border", False): "within(position, size)",
    ("reflection", True): "within(reflected(position, 0.0, size - 1.0), size)",
    ("reflection", False): "within(reflected(position, -0.5, size), size)",
}


def _sampled_shape(x: Operand, grid: Operand, interpolation: int, padding: int, *_: object) -> Shape:
    require(x.rank == 4 and grid.rank == 4, "grid_sampler_2d takes four dims, of input and grid", x, grid)
    require(grid.shape[-1] == 2, "the grid's last dim must be 2: a place's x and y", x, grid)
    require(grid.shape[0] == x.shape[0], "input and grid must have one batch", x, grid)
    require(min(x.shape[2:]) > 0, "planes must not be empty", x, grid)
    known = 0 <= interpolation < len(_SAMPLES)
    require(known, f"interpolation_mode is 0 (bilinear), 1 (nearest) or 2 (bicubic), not {interpolation}")
    known = 0 <= padding < len(_PADDINGS)
    require(known, f"padding_mode is 0 (zeros), 1 (border) or 2 (reflection), not {padding}")
    return (*x.shape[:2], *grid.shape[1:3])


@op(
    "aten.grid_sampler_2d.default",
    "input grid interpolation_mode:int padding_mode:int align_corners:bool -> out",
    shape=_sampled_shape,
)
def grid_sampler(
    x: Operand, grid: Operand, interpolation_mode: int, padding_mode: int, align_corners: bool, out: Operand
) -> Iterator[Dispatch]:
    onto_plane = _ONTO_PLANE.get((_PADDINGS[padding_mode], align_corners))
    declarations = {} if onto_plane is None else {"onto_plane": onto_plane}
    batch, channels, height, width = x.shape
    yield Dispatch(
        kernel(
            "grid_sampler",
            elements=_ELEMENTS[align_corners],
            sample=f"{_SAMPLES[interpolation_mode]}(plane, position)",
            **declarations,
        ),
        x=x,
        grid=grid,
        out=out,
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        out_height=out.shape[2],
        out_width=out.shape[3],
        threads=out.numel,
    )


def _sampled_volume(x: Operand, grid: Operand, interpolation: int, padding: int, *_: object) -> Shape:
    require(x.rank == 5 and grid.rank == 5, "grid_sampler_3d takes five dims, of input and grid", x, grid)
    require(grid.shape[-1] == 3, "the grid's last dim must be 3: a place's x, y and z", x, grid)
    require(grid.shape[0] == x.shape[0], "input and grid must have one batch", x, grid)
    require(min(x.shape[2:]) > 0, "volumes must not be empty", x, grid)
    require(
        interpolation in (0, 1), f"interpolation_mode is 0 (bilinear) or 1 (nearest), not {interpolation}"
    )
    known = 0 <= padding < len(_PADDINGS)
    require(known, f"padding_mode is 0 (zeros), 1 (border) or 2 (reflection), not {padding}")
    return (*x.shape[:2], *grid.shape[1:4])


@op(
    "aten.grid_sampler_3d.default",
    "input grid interpolation_mode:int padding_mode:int align_corners:bool -> out",
    shape=_sampled_volume,
)
def grid_sampler_volume(
    x: Operand, grid: Operand, interpolation_mode: int, padding_mode: int, align_corners: bool, out: Operand
) -> Iterator[Dispatch]:
    onto_plane = _ONTO_PLANE.get((_PADDINGS[padding_mode], align_corners))
    declarations = {} if onto_plane is None else {"onto_plane": onto_plane}
    batch, channels, depth, height, width = x.shape
    sample = ("between", "nearest")[interpolation_mode]
    yield Dispatch(
        kernel(
            "grid_sampler_3d",
            elements=_ELEMENTS[align_corners],
            sample=f"{sample}(volume, position)",
            **declarations,
        ),
        x=x,
        grid=grid,
        out=out,
        batch=batch,
        channels=channels,
        depth=depth,
        height=height,
        width=width,
        places=numel(out.shape[2:]),
        threads=out.numel,
    )


def _priors_shape(x: Operand, stride: int, offset: float) -> Shape:
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
