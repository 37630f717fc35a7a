"""Measured cases of what training takes."""

from __future__ import annotations

from arguments import tensor, weight
from measured_case import Case, case
from quantized_cases import packed
from training_cases import INPUT_GRADIENT, LOSS, RATES, REQUANTIZE, STEP, WEIGHT_GRADIENT


def input_product(rows: tuple[int, ...], kernels: str, on: str) -> Case:
    weights = weight(values=packed(131, 72), dtype="u8"), weight(3, 132, low=0.01, high=0.2)
    x = tensor("M", 131, low=-1, high=1)
    return case(INPUT_GRADIENT, x, *weights, 32, kernels=kernels, on=(on,), live={"M": rows})


TRAINING_CASES = [
    case(
        LOSS,
        *(tensor("S", 13), tensor("S", dtype="i64", low=-1, high=12), 3.0),
        kernels="cross_entropy",
    ),
    case(WEIGHT_GRADIENT, tensor("S", 67), tensor("S", 5), kernels=""),
    input_product((67, 1, 33), "matmul_thread", "software"),
    input_product((67, 3, 33), "matmul_tiled", "hardware"),
    case(
        STEP,
        *(tensor("S", 5), tensor("S", 5), tensor("S", 5, low=0), tensor("S", 5), *RATES),
        kernels="adamw_step",
    ),
    case(
        REQUANTIZE,
        *(tensor("S", 67), weight(3, 8, low=0.1), 32),
        kernels="q4_requant",
        out="u8",
    ),
]
