"""The sequence of each row: its slot, its position, its RoPE angles.

Tokens and positions are stored per slot, written by the host and the sampler. A row with a negative slot is
padding: it is computed, but nothing of it is stored."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.ops import Dispatch, LiveShape, Operand, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _place_shapes(slots: Operand, tokens: Operand, positions: Operand) -> tuple[LiveShape, LiveShape]:
    require(slots.rank == 1, "slots are a list", slots)
    fits = tokens.rank == 1 and tokens.shape == positions.shape and tokens.numel > 0
    require(fits, "tokens and positions are lists of one length", tokens, positions)
    return (1, slots.shape[0]), (slots.shape[0], 2)


@op("pteron.locate_rows", "slots tokens! positions! -> ids places", shape=_place_shapes)
def locate_rows(
    slots: Operand, tokens: Operand, positions: Operand, ids: Operand, places: Operand
) -> Iterator[Dispatch]:
    """The token of each row, and its (position, slot): (-1, -1) for a padding row."""
    yield Dispatch(
        kernel("locate_rows"),
        slots=slots,
        tokens=tokens,
        positions=positions,
        ids=ids,
        places=places,
        count=slots.numel,
        slot_count=tokens.numel,
        threads=slots.numel,
    )


def _angles_shape(cosines: Operand, sines: Operand, places: Operand) -> LiveShape:
    fits = cosines.rank == 2 and cosines.shape == sines.shape and cosines.shape[0] > 0
    require(fits, "cos and sin must be matrices of one shape", cosines, sines)
    require(places.rank == 2 and places.shape[1] == 2, "places are [rows, 2]", places)
    return (places.shape[0], 2 * cosines.shape[1])


@op("pteron.row_angles", "cosines sines places -> out", shape=_angles_shape)
def row_angles(cosines: Operand, sines: Operand, places: Operand, out: Operand) -> Iterator[Dispatch]:
    """The rows of two tables at each row's position, cosines first. Positions outside are clamped."""
    steps, columns = cosines.shape
    yield Dispatch(
        kernel("row_angles"),
        cosines=cosines,
        sines=sines,
        places=places,
        out=out,
        count=out.numel,
        steps=steps,
        columns=columns,
        threads=out.numel,
    )
