"""RoPE for batched rows: each row has its own angles; keys and values may go to caches."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.attention.write import Positions
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

FORMS = ("neighbours", "halves")  # as in families/rope/rotate.py


def _both_shapes(xq: Operand, xk: Operand, *_: object) -> tuple[LiveShape, LiveShape]:
    return xq.shape, xk.shape


@op("pteron.rope_rows", "xq xk angles form:str -> xq_out xk_out", shape=_both_shapes)
def rope_rows(
    xq: Operand, xk: Operand, angles: Operand, form: str, xq_out: Operand, xk_out: Operand
) -> Iterator[Dispatch]:
    yield rotate(angles, form, xq, xq_out, xk, xk_out)


def rotate(
    angles: Operand,
    form: str,
    q: Operand,
    q_out: Operand,
    k: Operand,
    k_out: Operand,
    v: Operand | None = None,
    v_out: Operand | None = None,
    positions: Positions | None = None,
) -> Dispatch:
    """q and k rotated, one row of angles for each of their rows; with values and positions, keys and
    values go to their places in caches."""
    rotary = _rotary(q, k, angles, form)
    rows, (heads, width), key_heads = angles.shape[0], q.shape[-2:], k.shape[-2]
    every = heads + key_heads * (2 if v is not None else 1)
    work = width - rotary // 2
    count = rows * every * work
    columns = angles.shape[1]
    return Dispatch(
        kernel("rope_rows"),
        HALVED=form == "halves",
        ARE_JOINED=True,
        SINES=columns // 2,
        IS_RING=positions.is_ring if positions is not None else None,
        q=q,
        k=k,
        v=v,
        cosines=angles,
        places=positions.places if positions is not None else None,
        q_out=q_out,
        k_out=k_out,
        v_out=v_out,
        count=count,
        work=work,
        all=every,
        heads=heads,
        key_heads=key_heads,
        width=width,
        rotary=rotary,
        columns=columns,
        steps=rows,
        start=0,
        angle_strides=(columns, 0),
        slots=k_out.shape[0] if v is not None else 1,
        capacity=k_out.shape[1] if v is not None else rows,
        threads=count,
    )


def _rotary(q: Operand, k: Operand, angles: Operand, form: str) -> AnyInt:
    """The number of elements of a head that are rotated; checks shapes and form."""
    require(form in FORMS, f"the form is one of {FORMS}, not {form!r}", angles)
    rows, width = angles.shape[0], q.shape[-1]
    counts = all(x.numel == rows * x.shape[-2] * width for x in (q, k))
    require(
        counts and k.shape[-1] == width, "queries and keys have a row for each row of angles", q, k, angles
    )
    columns = angles.shape[1] // 2
    rotary = columns if form == "halves" else 2 * columns
    require(rotary % 2 == 0 and rotary <= width, "the angles must not be wider than a head", q, angles)
    require(form == "halves" or rotary == width, "there is an angle for each pair of a head", q, angles)
    return rotary
