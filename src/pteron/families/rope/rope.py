"""Rotary position embeddings, in the three forms that exporters emit."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, op, require, same_shape
from pteron.wgsl import Kernel, Kernels

kernel = Kernels(__name__)

_FULL_TABLE = """
  let i = row * params.rotary + pair;
  return vec2(f32(cosines[i]), f32(sines[i]));"""
_FULL_TABLE_SECOND = """
  let i = row * params.rotary + pair + params.rotary / 2u;
  return vec2(f32(cosines[i]), f32(sines[i]));"""
_PAIRED_TABLE = """
  let i = row * params.rotary + 2u * pair;
  return vec2(f32(cosines[i]), f32(cosines[i + 1u]));"""

INTERLEAVED = kernel("rope")
HALVED = kernel("rope", HALVED=True, first_angle=_FULL_TABLE, second_angle=_FULL_TABLE_SECOND)
PAIRED = kernel("rope", first_angle=_PAIRED_TABLE)


def _rotate(
    rotation: Kernel,
    x: Operand,
    cosines: Operand,
    sines: Operand | None,
    out: Operand,
    *,
    steps: int,
    heads: int,
    rotary: int,
    start: AnyInt = 0,
) -> Dispatch:
    width = x.shape[-1]
    count = x.numel // width * (width - rotary // 2) if width else 0
    return Dispatch(
        rotation,
        x=x,
        cosines=cosines,
        sines=sines,
        out=out,
        count=count,
        steps=steps,
        heads=heads,
        width=width,
        rotary=rotary,
        start=start,
        threads=count,
    )


def _both_shapes(xq: Operand, xk: Operand, *_: object) -> tuple[Shape, Shape]:
    require(xq.rank == 4 and xk.rank == 4, "queries and keys are [batch, steps, heads, width]", xq, xk)
    require(xq.shape[1] == xk.shape[1], "queries and keys must have the same steps", xq, xk)
    return xq.shape, xk.shape


@op(
    "et_vk.apply_rotary_emb.default",
    "xq xk freqs_cos freqs_sin -> xq_out xk_out",
    shape=_both_shapes,
)
def rope(
    xq: Operand, xk: Operand, freqs_cos: Operand, freqs_sin: Operand, xq_out: Operand, xk_out: Operand
) -> Iterator[Dispatch]:
    for x, out in ((xq, xq_out), (xk, xk_out)):
        steps, heads, width = x.shape[1:]
        expected = (steps, width // 2)
        fits = freqs_cos.shape == freqs_sin.shape == expected and width % 2 == 0
        require(fits, f"cos and sin must be {list(expected)}", x, freqs_cos, freqs_sin)
        yield _rotate(INTERLEAVED, x, freqs_cos, freqs_sin, out, steps=steps, heads=heads, rotary=width)


@op(
    "et_vk.apply_rotary_emb_hf.default",
    "xq xk freqs_cos freqs_sin start_pos:int -> xq_out xk_out",
    shape=_both_shapes,
)
def rope_hf(
    xq: Operand,
    xk: Operand,
    freqs_cos: Operand,
    freqs_sin: Operand,
    start_pos: AnyInt,
    xq_out: Operand,
    xk_out: Operand,
) -> Iterator[Dispatch]:
    tables_fit = freqs_cos.rank == 2 and freqs_cos.shape == freqs_sin.shape
    require(tables_fit, "cos and sin must be matrices of one shape", freqs_cos, freqs_sin)
    rows, rotary = freqs_cos.shape
    for x, out in ((xq, xq_out), (xk, xk_out)):
        steps, heads, width = x.shape[1:]
        require(rotary % 2 == 0 and rotary <= width, "the tables must not be wider than a head", x, freqs_cos)
        inside = start_pos >= 0 and start_pos + steps <= rows
        require(inside, f"positions {start_pos} to {start_pos + steps} leave the table", x, freqs_cos)
        yield _rotate(
            HALVED, x, freqs_cos, freqs_sin, out, steps=steps, heads=heads, rotary=rotary, start=start_pos
        )


@op("et_vk.apply_rotary_emb_interleaved.default", "x freqs_cis -> out", shape=same_shape)
def rope_interleaved(x: Operand, freqs_cis: Operand, out: Operand) -> Iterator[Dispatch]:
    require(x.rank >= 2 and x.shape[-1] % 2 == 0, "x must be [..., steps, width], width even", x)
    steps, width = x.shape[-2:]
    require(freqs_cis.numel == steps * width, "freqs must have a value for each of x's columns", x, freqs_cis)
    yield _rotate(PAIRED, x, freqs_cis, None, out, steps=steps, heads=1, rotary=width)
