"""Measured cases (measured_cases.py) of the kernels that quantise, dequantise and compute in int8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arguments import tensor, weight
from test_quantized import EMBEDDING_4BIT, embedding_4bit
from test_quantized_affine import DECOMPOSED, eager
from test_quantized_conv import CONV, DEPTHWISE, FULL, depthwise, regular
from test_quantized_q8 import ADD, LINEAR, add, bias_of, factors, linear
from test_quantized_weights import INT8, bytes_of, int8, scales_of


def quantized_cases(case: Callable[..., Any]) -> list[Any]:
    """The cases, as `case` makes them."""
    scales, zeros = weight(3, low=0.01, high=0.1), weight(3, dtype="i32", low=0, high=9)
    planes = tensor(2, 5, "S", 7, **FULL)
    window = ([3, 3], [2, 1], [1, 1], [1, 2])
    convolved, convolved_oracle = regular(planes, (5, 67), window)
    deep, deep_oracle = depthwise(planes, 5, window)
    row = (tensor("S", 101, **FULL), 0.02, 5, *factors(13, 101), 0.05, -3, bias_of(13), "none")
    return [
        case(
            ADD,
            tensor("S", 5, **FULL),
            tensor(5, **FULL),
            1,
            0,
            2,
            3,
            4,
            5,
            1,
            oracle=add,
            out="i8",
            kernels="q8_elements",
        ),
        case(
            CONV, *convolved, oracle=convolved_oracle, out="i8", kernels="q8_pack q8_thread", on=("software",)
        ),
        case(
            CONV, *convolved, oracle=convolved_oracle, out="i8", kernels="q8_pack q8_tiled", on=("hardware",)
        ),
        case(
            LINEAR, *row, oracle=linear, live={"S": (3, 1)}, out="i8", kernels="q8_matvec", on=("hardware",)
        ),
        case(DEPTHWISE, *deep, oracle=deep_oracle, out="i8", kernels="q8_depthwise"),
        case(
            f"{DECOMPOSED}quantize_per_channel.default",
            *(tensor("S", 3, 5), scales, zeros, 1, -128, 127, "i8"),
            oracle=eager("quantize_per_channel"),
            out="i8",
            kernels="affine reciprocals",
        ),
        *[
            case(
                INT8,
                *(tensor("M", 101), bytes_of(67, 101), scales_of(67)),
                oracle=int8,
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
            oracle=embedding_4bit,
            kernels="embedding_4bit",
        ),
    ]
