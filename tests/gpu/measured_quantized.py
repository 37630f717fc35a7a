"""Measured cases of operators that quantise, dequantise, or compute with quantised weights or activations."""

from __future__ import annotations

from typing import Any

from affine_cases import DECOMPOSED, eager
from arguments import tensor, weight
from fused_cases import FUSED, FUSED_INT8, fused, fused_int8
from fused_cases import factors as factors_q4
from int8 import ADD, FULL, LINEAR, bias_of, factors
from int8_planes import CONV, DEPTHWISE, depthwise, regular
from measured_case import Case, case
from quantized_cases import (
    DYNAMIC,
    EMBEDDING_4BIT,
    EMBEDDING_Q8,
    INT8,
    LINEAR_Q8,
    bytes_of,
    groups_of,
    packed,
    scales,
    scales_of,
    sums,
)
from quantized_cases import LINEAR as LINEAR_Q4

from pteron.reference.products import linear_int8_weights

SCALES, ZEROS = weight(3, low=0.01, high=0.1), weight(3, dtype="i32", low=0, high=9)
PLANES = tensor(2, 5, "S", 7, **FULL)
WINDOW = ([3, 3], [2, 1], [1, 1], [1, 2])
CONVOLVED = regular(PLANES, (5, 67), WINDOW)
EACH = depthwise(PLANES, 5, WINDOW)
ROW = (tensor("S", 101, **FULL), 0.02, 5, *factors(13, 101), 0.05, -3, bias_of(13), "none")


def product_q4(
    rows: tuple[int, ...], kernels: str, on: str, depth: int = 100, columns: int = 67, **options: Any
) -> Case:
    weights = weight(values=packed(columns, depth), dtype="u8"), scales(depth, 32, columns)
    x, bias = tensor("M", depth, low=-1, high=1), weight(-(-columns // 4) * 4)
    return case(LINEAR_Q4, x, *weights, 32, bias, kernels=kernels, on=(on,), live={"M": rows}, **options)


def product_q8(
    rows: tuple[int, ...], kernels: str, on: str, depth: int, group: int, *, minima: bool = True
) -> Case:
    arguments = tensor("M", depth, low=-1, high=1), *groups_of(67, depth, group, minima=minima), weight(67)
    return case(LINEAR_Q8, *arguments, kernels=kernels, on=(on,), live={"M": rows})


def fused_case(depth: int, *columns: int, biases: bool, gated: bool) -> Case:
    """A norm before products, their gate or three outputs after them."""
    given = [weight(count) for count in columns] if biases else None
    arguments = weight(depth), 1e-5, *factors_q4(depth, *columns), given, 32, 4, None, None, gated
    live = {"M": (3, 1, 4)}
    x = tensor(1, "M", depth)
    return case(FUSED, x, *arguments, kernels="q4_digits", on=("subgroups",), oracle=fused, live=live)


def dynamic_case(rows: tuple[int, ...], kernels: str, on: str, *columns: int, gated: bool) -> Case:
    weights, scales = factors_q4(64, *columns)
    known = [sums(count, 64, 32) for count in columns]
    arguments = weight(64), 1e-5, weights, scales, None, 32, known, None, None, gated
    options: dict[str, Any] = {"oracle": fused_int8, "live": {"M": rows}}
    return case(FUSED_INT8, tensor(1, "M", 64), *arguments, kernels=kernels, on=(on,), **options)


def product_int8(rows: tuple[int, ...], kernels: str, depth: int) -> Case:
    x = tensor("M", depth, low=-1, high=1), tensor("M", low=2.0**-7, high=2.0**-7)
    zeros = tensor("M", dtype="i8", low=-20, high=20)
    weights = weight(values=packed(67, depth), dtype="u8"), sums(67, depth, 32), scales(depth, 32, 67)
    arguments = (*x, zeros, *weights, 32, weight(68))
    return case(DYNAMIC, *arguments, kernels=kernels, on=("hardware",), live={"M": rows})


QUANTIZED_CASES = [
    case(
        ADD,
        *(tensor("S", 5, **FULL), tensor(5, **FULL), 1, 0, 2, 3, 4, 5, 1),
        out="i8",
        kernels="q8_elements",
    ),
    case(CONV, *CONVOLVED, out="i8", kernels="q8_pack q8_thread", on=("software",)),
    case(CONV, *CONVOLVED, out="i8", kernels="q8_pack q8_tiled", on=("hardware",)),
    case(LINEAR, *ROW, live={"S": (3, 1)}, out="i8", kernels="q8_matvec", on=("hardware",)),
    case(DEPTHWISE, *EACH, out="i8", kernels="q8_depthwise"),
    case(
        f"{DECOMPOSED}quantize_per_channel.default",
        *(tensor("S", 3, 5), SCALES, ZEROS, 1, -128, 127, "i8"),
        oracle=eager("quantize_per_channel"),
        out="i8",
        kernels="affine reciprocals",
    ),
    *[
        case(
            INT8,
            *(tensor("M", 101), bytes_of(67, 101), scales_of(67)),
            oracle=linear_int8_weights,
            live={"M": rows},
            kernels=f"q4_pad {kernel}",
            on=(kind,),
        )
        for rows, kernel, kind in (
            ((33, 1, 5), "q4_thread", "software"),
            ((3, 1), "q4_matvec", "hardware"),
            ((67, 33), "q4_tiled", "hardware"),
        )
    ],
    case(
        EMBEDDING_4BIT,
        *(weight(11, 7, dtype="u8", low=0, high=255), weight(11, 2), None, -8, 7),
        *(tensor("S", dtype="i64", low=0, high=10), None),
        kernels="embedding_4bit",
    ),
    case(
        *(EMBEDDING_Q8, *groups_of(13, 72, 32, minima=True)),
        tensor("S", dtype="i64", low=0, high=12),
        kernels="embedding_q4",
    ),
    product_q8((33, 1, 5), "q4_pad q4_thread", "software", 101, 16),
    product_q8((33, 1, 6), "q4_uniform", "software", 104, 32),
    product_q8((3, 1), "q4_matvec", "hardware", 324, 32),
    product_q8((67, 33), "q4_tiled", "hardware", 100, 16),
    product_q8((4, 1, 3, 2), "q4_digits", "subgroups", 96, 32),
    product_q8((2, 1), "q4_digits", "subgroups", 2048, 16, minima=False),
    product_q4((67, 1, 33), "q4_thread", "software"),
    product_q4((67, 1, 6), "q4_uniform", "software", 104),
    product_q4((3, 1, 2), "q4_matvec", "hardware", 324),
    product_q4((67, 33), "q4_tiled", "hardware"),
    product_q4((67, 33), "q4_matrix", "matrices", tolerance=0.02),
    product_q4((4, 1, 3, 2), "q4_digits", "subgroups"),
    product_q4((2, 1), "q4_digits", "subgroups", 1000, 8193),
    product_q4((9, 5), "q4_rows", "subgroups"),
    product_q4((17, 8), "q4_rows q4_merge", "subgroups", 1028, 68),
    fused_case(72, 33, 33, biases=True, gated=True),
    fused_case(1024, 5, 66, 1, biases=False, gated=False),
    product_q4((3, 1), "q4_thread q4_merge", "software", 80_000, 5),
    product_q4((20, 9), "q4_tiled q4_merge", "hardware", 1028),
    product_q4((20, 9), "q4_tiled q4_merge", "hardware", 1028, 68),
    dynamic_case((33, 9), "quantize_rows q4_int8", "hardware", 68, 68, gated=True),
    dynamic_case((3, 1), "q4_digits", "subgroups", 33, 5, gated=False),
    product_int8((67, 33), "q4_quantize q4_int8", 96),
    product_int8((20, 9), "q4_quantize q4_int8 q4_merge", 1024),
]
