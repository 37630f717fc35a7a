"""silu(gate) · up of chosen experts with 4-bit weights: on GPUs one launch computes both products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pteron.families.experts.products import choice_of, experts_q4gsw, product_shape
from pteron.families.quantized import digits
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.linear_q4 import words_of
from pteron.families.quantized.packing import Choice, PackedWeights
from pteron.graph import Shape
from pteron.ops import OPERATORS, AnyInt, Call, Dispatch, Operand, Target, op, require
from pteron.ops.operand import joined
from pteron.ops.rewrite import Flow, Replacement, rewrite

_PRODUCT, _GATED = "pteron.experts_q4gsw.default", "pteron.experts_gated_q4"


class _PairChoice(Choice):
    """All gates come before all ups: row_of_pair of lib/q4_result.wgsl finds the up of a gate."""

    @property
    def declarations(self) -> dict[str, object]:
        return {
            **super().declarations,
            "first_row": "min(u32(experts[m]), MATRICES - 1u) * (params.columns / 2u)",
            "row_of_pair": "pair + second * MATRICES * (params.columns / 2u)",
        }


def _shape(x: Operand, experts: Operand, gate: Operand, *rest: object) -> Shape:
    up, count = rest[1], rest[-1]
    assert isinstance(up, Operand)
    require(gate.shape == up.shape, "gates and ups must have one shape", gate, up)
    return product_shape(x, experts, gate, count, 2 * gate.shape[-1])  # type: ignore[arg-type]


@op(_GATED, "x experts gate gate_scales up up_scales group_size:int count:int -> out", shape=_shape)
def experts_gated_q4(
    x: Operand,
    experts: Operand,
    gate: Operand,
    gate_scales: Operand,
    up: Operand,
    up_scales: Operand,
    group_size: AnyInt,
    count: AnyInt,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    pairs = ((gate, gate_scales), (up, up_scales))
    both = [words_of(weights, scales, group_size, x.shape[-1]) for weights, scales in pairs]
    packed = _joined(both, choice_of(x, experts, count, out), out.shape[-1])
    rows = out.numel // out.shape[-1]
    if packed.fits(target) and digits.suits(target, rows, packed):
        yield digits.product(x, packed, Epilogue((out,)), target, is_gated=True)
        return
    made = [out.scratch(out.shape), out.scratch(out.shape)]
    for (weights, scales), result in zip(pairs, made, strict=True):
        yield from experts_q4gsw(x, experts, weights, scales, group_size, count, result, target=target)
    yield from OPERATORS["pteron.silu_mul"].compute(*made, out)


def _joined(both: list[PackedWeights], choice: Choice, columns: int) -> PackedWeights:
    """Gates of all experts, then ups of all experts."""
    return replace(
        both[0],
        weights=joined([each.weights for each in both]),
        scales=joined([each.scales for each in both]),
        columns=2 * columns,
        choice=_PairChoice(choice.experts, choice.matrices, choice.share),
    )


@rewrite("gated_experts")
def gated_experts(flow: Flow) -> Iterator[Replacement]:
    """silu(gate) · up, where both are products of one x with the same experts."""
    for call in flow.of("pteron.silu_mul"):
        products = [flow.maker(value, _PRODUCT) for value in call.inputs]
        gate, up = products
        if gate is None or up is None or gate is up or gate.inputs[1] is None:
            continue
        x, experts, weights, scales, group, count = gate.inputs
        shapes = [getattr(product.inputs[2], "shape_max", None) for product in (gate, up)]
        if up.inputs[:2] != (x, experts) or up.inputs[4:] != (group, count) or shapes[0] != shapes[1]:
            continue
        inputs = (x, experts, weights, scales, *up.inputs[2:4], group, count)
        yield Replacement((gate, up, call), Call(call.node, OPERATORS[_GATED], inputs, call.outputs))
