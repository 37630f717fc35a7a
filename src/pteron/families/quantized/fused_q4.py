"""Products with 4-bit weights and what surrounds them in a layer, as one operator: an RMS norm before them,
several of one x, a gate, a residual's sum. Few rows are one launch where the device can; of many, the norm
has its own, and on software adapters the gate too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pteron.families.linear.product import ROWS_FEW
from pteron.families.norm.norm import rms_norm
from pteron.families.quantized import digits, tiled_q4
from pteron.families.quantized.ends import Ends
from pteron.families.quantized.linear_q4 import linear_dq8ca_q4gsw, linear_shape, product, words_of
from pteron.families.quantized.packing import Words
from pteron.families.quantized.sums import apart, sum_shape
from pteron.graph import Shape
from pteron.ops import OPERATORS, AnyInt, Dispatch, Operand, Target, Weight, op, require
from pteron.ops.operand import joined


def shapes(
    x: Operand,
    gain: Operand | None,
    eps: float,
    weights: Sequence[Operand],
    scales: Sequence[Operand],
    biases: Sequence[Operand] | None,
    group_size: AnyInt,
    residual: Operand | None,
    gated: bool,
) -> list[Shape]:
    if residual is not None:
        (matrix,) = weights
        return [sum_shape(linear_shape(x, matrix), residual)]
    found = [linear_shape(x, matrix) for matrix in weights]
    require(not gated or len(set(found)) == 1 < len(found), "a gate must fit what it is for", x, *weights)
    return found[:1] if gated else found


@op(
    "pteron.linear_q4",
    "x gain? eps:float weights:tensors scales:tensors biases:tensors? group_size:int residual? gated:bool "
    "-> out:tensors",
    shape=shapes,
)
def linear_q4(
    x: Operand,
    gain: Operand | None,
    eps: float,
    weights: Sequence[Operand],
    scales: Sequence[Operand],
    biases: Sequence[Operand] | None,
    group_size: AnyInt,
    residual: Operand | None,
    gated: bool,
    *outputs: Operand,
    target: Target,
) -> Iterator[Dispatch]:
    """x, normalised where there is a gain, times each matrix, plus its bias; then silu(first) · second where
    it is gated. The residual is added to a single product, which has no gate."""
    if residual and (parts := apart(linear_shape(x, weights[0]), residual, outputs[0])):
        alone, total = parts
        plain = x, gain, eps, weights, scales, biases, group_size, None, gated
        yield from linear_q4(*plain, alone, target=target)
        yield from total
        return
    rows = x.numel // x.shape[-1] if x.shape[-1] else 0
    matrices = [words_of(*each, group_size, x.shape[-1]) for each in zip(weights, scales, strict=True)]
    packed = joined_words(matrices)
    is_bound = packed.fits(target)
    bias = joined_biases(weights, biases)
    if is_bound and digits.suits(target, rows, packed):
        ends = Ends(outputs, bias, residual)
        yield digits.product(x, packed, ends, target, gain=gain, eps=eps, is_gated=gated)
        return
    source = x
    if gain is not None:
        source = x.scratch()
        yield from rms_norm(x, gain, eps, source, target=target)
    if is_bound and gated and rows > ROWS_FEW and not target.is_cpu:
        yield from tiled_q4.product(source, packed, Ends(outputs, bias), target, is_gated=True)
        return
    made = (outputs[0].scratch(), outputs[0].scratch()) if gated else outputs
    if is_bound:
        yield from product(source, packed, Ends(made, bias, residual), target)
    else:  # one after the other: together they are larger than a binding
        for place, (words, output) in enumerate(zip(matrices, made, strict=True)):
            own = biases[place] if biases else None
            yield from product(source, words, Ends((output,), own, residual), target)
    if gated:
        yield from silu_mul(*made, *outputs, target=target)


def silu_mul(gate: Operand, value: Operand, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    """The gate of two products."""
    for dispatch in OPERATORS["pteron.silu_mul"].dispatches([gate, value], [out], target):
        assert isinstance(dispatch, Dispatch)
        yield dispatch


@op(
    "pteron.linear_dq8ca_q4_add",
    "x x_scales x_zeros weights weight_sums weight_scales group_size:int bias? residual -> out",
    shape=lambda x, x_scales, x_zeros, weights, *rest: sum_shape(linear_shape(x, weights), rest[-1]),
)
def linear_dq8ca_q4_add(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """A product of x as int8, plus what is added to it."""
    *inputs, residual, out = arguments
    if parts := apart(linear_shape(inputs[0], inputs[3]), residual, out):
        alone, total = parts
        yield from linear_dq8ca_q4gsw(*inputs, alone, target=target)
        yield from total
    else:
        yield from linear_dq8ca_q4gsw(*inputs, out, residual, target=target)


def joined_words(matrices: Sequence[Words]) -> Words:
    """Matrices of one depth one below the other."""
    weights, scales = [words.weights for words in matrices], [words.scales for words in matrices]
    columns = sum(words.columns for words in matrices)
    return replace(matrices[0], weights=joined(weights), scales=joined(scales), columns=columns)


def joined_biases(weights: Sequence[Operand], biases: Sequence[Operand] | None) -> Operand | Weight | None:
    if biases is None:
        return None
    pairs = list(zip(biases, weights, strict=True))
    for bias, matrix in pairs:
        require(bias.numel >= matrix.shape[0], "bias must have one value per column", bias, matrix)
    if len(pairs) == 1:
        return biases[0]
    return joined([bias.part(0, 0, matrix.shape[0]) for bias, matrix in pairs])
