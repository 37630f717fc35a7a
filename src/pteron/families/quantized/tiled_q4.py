"""Products with 4-bit or 8-bit weights for many rows: tiles of floats (q4_tiled.wgsl) or of int8
(q4_int8.wgsl), and strips for 5 to 32 rows of floats (q4_rows.wgsl). If k is deep, in parts that another
launch merges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pteron.dtypes import Storage
from pteron.families.quantized import tiles
from pteron.families.quantized.digits import INT8_LESS_ZERO
from pteron.families.quantized.ends import Ends
from pteron.families.quantized.packing import Words
from pteron.families.quantized.tiles import FLOAT_TILES, INT8_TILES, Tile, choose
from pteron.ops import Dispatch, Operand, Scratch, Target, Weight
from pteron.ops.row_layout import fits_registers, folded, register_rows, row_groups
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

INT8_GROUP_MAX = 256  # words: Σ |x| · |w| <= 8 · 256 · 128 · 8 stays below 2^22

# Float kernels round x as int8 arithmetic does; SCALED multiplies the sums by x's scale.
QUANTIZED = {"activation": INT8_LESS_ZERO}
SCALED = {"finish": "sum * f32(x_scales[m])"}
# A part of a deep product writes only its sum.
PARTIAL = {"result": "sum", "added": "0.0"}
PARTIAL_QUADS = {"result": "sum", "added": "vec4(0.0)", "use_q4_result": "q4_quads"}

# By fours of columns (lib/q4_quads.wgsl): where those beyond the first output's go, by outputs less two.
_OTHER_QUADS = (
    "out_b[(m * WIDTH_B + n) / 4u] = vec4<R>(value);",
    "if (n < WIDTH_B) { out_b[(m * WIDTH_B + n) / 4u] = vec4<R>(value); } "
    "else { out_c[(m * (OTHERS - WIDTH_B) + n - WIDTH_B) / 4u] = vec4<R>(value); }",
)


@dataclass(frozen=True, slots=True)
class Int8:
    """A scale and a zero point per row, by which x becomes int8; or x as int8 words already, with the zero
    points after the scales (q4_quantize.wgsl, quantize_rows.wgsl)."""

    scales: Operand | Scratch
    zeros: Operand | None
    weight_sums: Weight | None = None  # of every group, [column][group], for q4_int8
    words: Scratch | None = None

    def is_packed(self, packed: Words) -> bool:
        """Whether q4_int8 can run: whole groups of whole steps, short enough for exact sums."""
        is_even = packed.depth % (8 * packed.group) == packed.group % 4 == 0
        return self.weight_sums is not None and is_even and packed.group <= INT8_GROUP_MAX


def product(
    x: Operand | Scratch,
    packed: Words,
    ends: Ends,
    target: Target,
    int8: Int8 | None = None,
    *,
    is_gated: bool = False,
) -> Iterator[Dispatch]:
    """The launches. Where it is gated, the first half of the columns is the second's gate."""
    columns, words = packed.columns, -(-packed.depth // 8)
    rows = ends.count // (columns // 2 if is_gated else columns)
    is_packed = int8 is not None and int8.is_packed(packed)
    strip = tiles.choose_strip(target, rows, packed) if int8 is None else None
    tile: tiles.Strip | Tile
    if strip:
        kind, (tile, parts) = "q4_rows", strip
        unit = tile.step_words  # that stay in one part
    else:
        kind, choices = ("q4_int8", INT8_TILES) if is_packed else ("q4_tiled", FLOAT_TILES)
        tile, parts = choose(choices, target, rows, columns, 8 * words, 8 * packed.group, is_gated)
        unit = packed.group if is_packed else tile.step // 8
    part = max(1, -(-words // (unit * parts))) * unit
    parts = -(-words // part)
    shape = {"WORDS": words, "PITCH": packed.pitch, "GROUP": packed.group, "PARTS": parts, "PART": part}
    declarations: dict[str, Any] = tile.declarations | shape
    factors: dict[str, Any] = {"x": x, "weights": packed.weights, "scales": packed.scales}
    if packed.library != "words":
        declarations["use_words"] = packed.library
    if int8 and is_packed:
        if int8.words is None:
            made = replace(int8, scales=Scratch(2 * rows), words=Scratch(2 * rows * words, Storage.U32))
            yield _quantized(x, int8, made, rows, words)
            int8 = made
        factors |= {"x": int8.words, "weight_sums": int8.weight_sums}
    elif int8:
        declarations |= QUANTIZED
        factors["x_zeros"] = int8.zeros
    if not is_packed:
        declarations["QUADS"] = packed.depth // 4
    groups = folded(target, parts * tile.count(rows, columns))
    factors |= {"rows": rows, "columns": columns}
    x_scales = int8.scales if int8 else None
    finish = (SCALED if int8 else {}) | _declarations(ends, columns, is_gated)
    bound = [*factors.values(), *ends.operands.values(), x_scales]
    can_bind = sum(isinstance(each, Operand | Scratch | Weight) for each in bound) <= target.buffers_max
    if parts == 1 and can_bind:
        finish["IS_GATED"] = is_gated
        finished = kernel(kind, **declarations, **finish)
        yield Dispatch(finished, **factors, **ends.operands, x_scales=x_scales, groups=groups)
        return
    sums = Scratch(parts * rows * columns)
    unfinished = kernel(kind, **declarations, **(PARTIAL_QUADS if columns % 4 == 0 else PARTIAL))
    yield Dispatch(unfinished, **factors, x_scales=x_scales, out=sums, groups=groups)
    yield merge_parts(sums, ends, parts, rows, columns, finish, x_scales, is_gated=is_gated)


def merge_parts(
    sums: Scratch,
    ends: Ends,
    parts: int,
    rows: int,
    columns: int,
    finish: Mapping[str, Any],
    x_scales: Operand | Scratch | None,
    *,
    is_gated: bool = False,
) -> Dispatch:
    """The launch that adds up the parts of a product and finishes as `finish` declares."""
    declarations = {"PARTS": parts, "IS_GATED": is_gated, **finish}
    is_wide = declarations.pop("use_q4_result", None) is not None
    outputs = ends.count // 4 if is_wide else ends.count
    return Dispatch(
        kernel("q4_merge_quads" if is_wide else "q4_merge", **declarations),
        sums=sums,
        **ends.operands,
        x_scales=x_scales,
        rows=rows,
        columns=columns,
        threads=outputs,
    )


def _quantized(x: Operand | Scratch, given: Int8, made: Int8, rows: int, words: int) -> Dispatch:
    return Dispatch(
        kernel("q4_quantize", WORDS=words),
        x=x,
        x_scales=given.scales,
        x_zeros=given.zeros,
        out=made.words,
        factors=made.scales,
        rows=rows,
        threads=rows * words,
    )


def _declarations(ends: Ends, columns: int, is_gated: bool) -> dict[str, Any]:
    """What a product does with its sums: by quads of columns if all outputs are multiples of four wide."""
    gates = {"OTHERS": columns // 2} if is_gated else {}
    if any(out.shape[-1] % 4 for out in ends.outputs):
        return ends.declarations | gates
    terms = ["vec4<f32>(bias[n / 4u])"] if ends.bias else []
    terms += ["vec4<f32>(residual[(m * params.columns + n) / 4u])"] if ends.residual else []
    others = {"store_other": _OTHER_QUADS[len(ends.outputs) - 2]} if len(ends.outputs) > 1 else {}
    added = {"added": " + ".join(terms) or "vec4(0.0)"}
    return ends.declarations | added | others | gates | {"use_q4_result": "q4_quads"}


def can_quantize_rows(target: Target, x: Operand) -> bool:
    """Whether quantize_rows.wgsl takes x."""
    return x.storage is Storage.F32 and fits_registers(target, x.shape[-1])


def quantize_rows(
    x: Operand, gain: Operand | None, eps: float, least: float, made: Int8, target: Target
) -> Dispatch:
    """The launch that writes x as int8 words, with a scale and a zero point per row, after an RMS norm if
    there is a gain."""
    rows = x.numel // x.shape[-1]
    # Norms are rounded the same way for few rows: lib/planes_int8.wgsl.
    layout = register_rows(target, rows, x.shape[-1], 2, in_one_order=gain is not None)
    norm = {"weighted": "value"} if gain is None else {"IS_NORMED": True, "EPS": eps}
    return Dispatch(
        kernel("quantize_rows", LEAST=least, **norm, **layout),
        x=x,
        gain=gain,
        row_scales=made.scales,
        words=made.words,
        rows=rows,
        groups=row_groups(target, layout, rows),
    )
