"""Live cases of operators that quantise, dequantise, or compute with quantised weights or activations.

The fixture gives most of them every type there is. Here, as in PyTorch, numbers to quantise are floats of 16
and 32 bits, what is dequantised are integers, and int8 arithmetic takes int8.
"""

from __future__ import annotations

from typing import Any

from affine_cases import DECOMPOSED, EXACT, dequantize_affine, eager, quantize_affine
from arguments import Argument, tensor, weight
from check import Oracle
from int8 import FULL, RELU, SHUFFLE
from live_case import FLOATS, Case, case, indices
from quantized_cases import (
    AFFINE,
    EMBEDDING,
    EMBEDDING_4BIT,
    INT8,
    PER_TENSOR,
    PER_TOKEN,
    QCS4W,
    bytes_of,
    packed,
    per_tensor,
    per_token,
    random_nibbles,
    scales_of,
)

from pteron.reference.products import linear_int8_weights

WHOLE = ("i8", "u8", "i32", "i64")
STEPS: dict[str, Any] = {"low": 0, "high": 100}  # integers that all of those types hold
SCALES: dict[str, Any] = {"dtype": "f32", "low": 0.01, "high": 0.1}
ZEROS: dict[str, Any] = {"dtype": "i32", "low": 0, "high": 9}
CHANNELS = (weight(3, **SCALES), weight(3, **ZEROS))
TOKENS = (tensor(2, "S", 1, **SCALES), tensor(2, "S", 1, **ZEROS))
BLOCKS = (tensor("S", 2, **SCALES), tensor("S", 2, **ZEROS))


def quantized(*arguments: Argument, oracle: Oracle) -> Case:
    return case(*arguments, oracle=oracle, out="i8", dtypes=FLOATS)


def dequantized(*arguments: Argument, oracle: Oracle) -> Case:
    return case(*arguments, oracle=oracle, out="f32", dtypes=WHOLE, tolerance=EXACT)


QUANTIZED_CASES: dict[str, Case] = {
    # To integers and back.
    f"{DECOMPOSED}quantize_per_channel.default": quantized(
        *(tensor("S", 3, "T"), *CHANNELS, 1, -128, 127, "i8"), oracle=eager("quantize_per_channel")
    ),
    f"{DECOMPOSED}quantize_per_token.default": quantized(
        *(tensor(2, "S", 13), *TOKENS, -128, 127, "i8"), oracle=eager("quantize_per_token")
    ),
    "torchao.quantize_affine.default": quantized(
        *(tensor("S", 14), [1, 7], *BLOCKS, "i8", None, None), oracle=quantize_affine
    ),
    f"{DECOMPOSED}dequantize_per_channel.default": dequantized(
        *(tensor("S", 3, "T", **STEPS), *CHANNELS, 1, 0, 127, "i32", None),
        oracle=eager("dequantize_per_channel"),
    ),
    f"{DECOMPOSED}dequantize_per_token.default": dequantized(
        *(tensor(2, "S", 13, **STEPS), *TOKENS, 0, 127, "i32", None), oracle=eager("dequantize_per_token")
    ),
    "torchao.dequantize_affine.default": dequantized(
        *(tensor("S", 14, **STEPS), [1, 7], *BLOCKS, "i32", None, None, 6), oracle=dequantize_affine
    ),
    # Their parameters.
    PER_TENSOR: case(tensor("S", 5, "T"), -128, 127, 1e-5, None, oracle=per_tensor, dtypes=FLOATS),
    PER_TOKEN: case(tensor(2, "S", 13), None, oracle=per_token, dtypes=FLOATS),
    AFFINE: case(
        *(tensor(1, "S", 13), "ASYMMETRIC", [1, 1, 13], None, -128, 127, None, None, None, False),
        dtypes=FLOATS,
    ),
    # Activations of 8 bits.
    RELU: case(tensor("S", 3, "T", **FULL), 0.031, 5, 0.047, -4, dtypes=("i8",)),
    SHUFFLE: case(tensor("N", 8, "S", "T", **FULL), 0.031, 5, 1 / 0.047, -4, 2, dtypes=("i8",)),
    # Weights of 4 and 8 bits.
    QCS4W: case(tensor("S", 101), random_nibbles(13, 101), scales_of(16), tolerance=1e-2),
    INT8: case(
        tensor("S", 101), bytes_of(13, 101), scales_of(13), oracle=linear_int8_weights, tolerance=1e-2
    ),
    EMBEDDING: case(
        *(weight(values=packed(13, 64), dtype="u8"), weight(13, 2, low=0.01, high=0.2), 32),
        *(indices(13, 1, "S"), True),
        dtypes=FLOATS,
    ),
    EMBEDDING_4BIT: case(
        *(weight(13, 7, dtype="u8", low=0, high=255), weight(13, 2, low=0.01, high=0.2)),
        *(weight(13, 2, dtype="i8", low=-8, high=7), -8, 7, indices(13, 1, "S"), None),
        dtypes=FLOATS,
    ),
}
