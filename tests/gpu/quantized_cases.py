"""Measured cases (measured_cases.py) of the kernels that quantise, dequantise and compute in int8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arguments import tensor, weight
from test_quantized import EMBEDDING_4BIT, embedding_4bit
from test_quantized_affine import DECOMPOSED, eager


def quantized_cases(case: Callable[..., Any]) -> list[Any]:
    """The cases, as `case` makes them."""
    scales, zeros = weight(3, low=0.01, high=0.1), weight(3, dtype="i32", low=0, high=9)
    return [
        case(
            f"{DECOMPOSED}quantize_per_channel.default",
            *(tensor("S", 3, 5), scales, zeros, 1, -128, 127, "i8"),
            oracle=eager("quantize_per_channel"),
            out="i8",
            kernels="affine reciprocals",
        ),
        case(
            EMBEDDING_4BIT,
            *(weight(11, 7, dtype="u8", low=0, high=255), weight(11, 2), None, -8, 7),
            *(tensor("S", dtype="i64", low=0, high=10), None),
            oracle=embedding_4bit,
            kernels="embedding_4bit",
        ),
    ]
