"""Padding with a constant: fill the whole output, then copy what remains of the input into its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.families.create.fill import fill
from pteron.families.layout.copy import copy_strided
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, op, require


def _borders(x: Operand, pad: Sequence[AnyInt]) -> list[tuple[int, int]]:
    """(before, after) of each dim; `pad` names them from the last dim on. Negative borders crop."""
    paired = len(pad) % 2 == 0 and len(pad) <= 2 * x.rank
    require(paired, f"pad by {list(pad)}: it takes two borders per dim, from the last on", x)
    sizes = [int(size) for size in pad]
    given = list(zip(sizes[::2], sizes[1::2], strict=True))
    return [(0, 0)] * (x.rank - len(given)) + given[::-1]


def _kept(x: Operand, borders: list[tuple[int, int]]) -> Shape:
    """What remains of x after cropping."""
    return tuple(
        size + min(before, 0) + min(after, 0) for size, (before, after) in zip(x.shape, borders, strict=True)
    )


def _padded_shape(x: Operand, pad: Sequence[AnyInt], value: AnyInt | float) -> Shape:
    borders = _borders(x, pad)
    require(min(_kept(x, borders), default=0) >= 0, f"pad by {list(pad)} crops more than there is", x)
    return tuple(size + sum(border) for size, border in zip(x.shape, borders, strict=True))


@op("aten.constant_pad_nd.default", "self pad:ints value:number -> out", shape=_padded_shape)
def constant_pad(
    x: Operand, pad: Sequence[AnyInt], value: AnyInt | float, out: Operand
) -> Iterator[Dispatch]:
    borders = _borders(x, pad)
    x_offset = sum(max(0, -before) * step for (before, _), step in zip(borders, x.strides, strict=True))
    out_offset = sum(max(0, before) * step for (before, _), step in zip(borders, out.strides, strict=True))
    yield fill(out, value)
    yield copy_strided(x, out, _kept(x, borders), x.strides, out.strides, x_offset, out_offset)
