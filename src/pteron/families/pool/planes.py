"""What the pools share: their shape rule, and windows that are too large for one invocation."""

from __future__ import annotations

from typing import Any

from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import Operand, require
from pteron.ops.window import Window

# Elements that one invocation gathers. A larger window is pooled along the width, then along the height: that
# keeps loops short, takes fewer loads where windows overlap, and gives more invocations to few windows.
GATHERED_MAX = 128


def pooled_shape(x: Operand, window: Window, ceil_mode: bool) -> Shape:
    require(x.rank in (3, 4) and x.dtype.is_float, "pools take three or four dims of floats", x)
    require(0 not in x.shape[-3:], "pools take planes and channels that are not empty", x)
    half = all(2 * padding <= reach for padding, reach in zip(window.padding, window.reach, strict=True))
    require(half, f"{window}: padding must be at most half of what a window reaches", x)
    return (*x.shape[:-2], *window.places(x.shape[-2:], ceil=ceil_mode))


def covers_plane(x: Operand, window: Window) -> bool:
    """Whether one window is the whole plane and nothing else."""
    return window.padding == (0, 0) and window.dilation == (1, 1) and window.size == x.shape[-2:]


def halves(window: Window) -> tuple[Window, Window]:
    """The window as one along the width and one along the height."""
    (height, width), (down, right) = window.size, window.stride
    (above, left), (rows, columns) = window.padding, window.dilation
    along_width = Window((1, width), (1, right), (0, left), (1, columns))
    along_height = Window((height, 1), (down, 1), (above, 0), (rows, 1))
    return along_width, along_height


def is_cut(window: Window) -> bool:
    """Whether a window is pooled in halves."""
    return numel(window.size) > GATHERED_MAX and min(window.size) > 1


def plane_parameters(shape: Shape, out_shape: Shape, window: Window) -> dict[str, Any]:
    """The planes that are read and written, and the window, as members of a kernel's Params."""
    return {
        **window.parameters,
        "planes": numel(shape[:-2]),
        "height": shape[-2],
        "width": shape[-1],
        "out_height": out_shape[-2],
        "out_width": out_shape[-1],
    }
