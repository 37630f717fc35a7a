"""silu(gate) · up of chosen experts with 4-bit weights: on GPUs one launch computes both products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pteron.families.experts.products import choice_of, product_shape
from pteron.families.quantized import digits, tiled_q4
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.formats import words_of
from pteron.families.quantized.linear_q4 import product
from pteron.families.quantized.packing import Choice, PackedWeights
from pteron.ops import OPERATORS, AnyInt, Call, Dispatch, LiveShape, Operand, Target, op, require
from pteron.ops.operand import joined
from pteron.ops.rewrite import Flow, Replacement, rewrite
from pteron.ops.tiles import PART_DEPTH_MAX

PRODUCT, GATED = "pteron.experts_q4gsw.default", "pteron.experts_gated_q4"


@dataclass(frozen=True, slots=True)
class GatedProduct:
    """silu(gate) · up of x, for the rows and matrices that a choice names."""

    gate: PackedWeights
    up: PackedWeights
    choice: Choice
    rows: AnyInt

    @property
    def _both(self) -> PackedWeights:
        """Gates of all experts, then ups of all experts."""
        return replace(
            self.gate,
            weights=joined([self.gate.weights, self.up.weights]),
            scales=joined([self.gate.scales, self.up.scales]),
            columns=2 * self.gate.columns,
            choice=self.choice,
        )

    def grouped(self, target: Target) -> tuple[GatedProduct, list[Dispatch]]:
        """The same with rows grouped for tiles if they are many, and the launches for it."""
        if not tiled_q4.are_groups_large(target, self.rows, self.choice):
            return self, []
        choice, launches = tiled_q4.group_rows(self.choice, self.rows, target)
        return replace(self, choice=choice), launches

    def is_in_digits(self, target: Target) -> bool:
        """Whether the kernel for few rows computes both, and a norm before them."""
        packed = self._both
        is_few = not tiled_q4.are_groups_large(target, self.rows, self.choice)
        return is_few and packed.fits(target) and digits.suits(target, self.rows, packed)

    def dispatches(
        self, x: Operand, out: Operand, target: Target, gain: Operand | None = None, eps: float = 0.0
    ) -> Iterator[Dispatch]:
        """The launches, if the choice is grouped where rows are many. Only the kernel for few rows can norm
        x."""
        packed = self._both
        if self.is_in_digits(target):
            yield digits.product(x, packed, Epilogue((out,)), target, gain=gain, eps=eps, is_gated=True)
            return
        if self.choice.grouping and packed.fits(target) and packed.depth <= PART_DEPTH_MAX:
            yield from tiled_q4.product(x, packed, Epilogue((out,)), target, is_gated=True)
            return
        made = [out.scratch(), out.scratch()]
        for matrix, result in zip((self.gate, self.up), made, strict=True):
            yield from product(x, replace(matrix, choice=self.choice), Epilogue((result,)), target)
        yield from OPERATORS["pteron.silu_mul"].compute(*made, out)


def gated_product(
    depth: AnyInt, pairs: tuple[Operand, ...], group_size: AnyInt, choice: Choice, rows: AnyInt
) -> GatedProduct:
    """`pairs` are the weights and scales of gates, then of ups."""
    gate, gate_scales, up, up_scales = pairs
    columns = int(gate.shape[0]) // choice.matrices
    left, right = (words_of(*pair, group_size, depth) for pair in ((gate, gate_scales), (up, up_scales)))
    return GatedProduct(replace(left, columns=columns), replace(right, columns=columns), choice, rows)


def _shape(x: Operand, experts: Operand, gate: Operand, *rest: object) -> LiveShape:
    up, count = rest[1], rest[-1]
    assert isinstance(up, Operand)
    require(gate.shape == up.shape, "gates and ups must have one shape", gate, up)
    return product_shape(x, experts, gate, count, 2 * gate.shape[-1])  # type: ignore[arg-type]


@op(GATED, "x experts gate gate_scales up up_scales group_size:int count:int -> out", shape=_shape)
def experts_gated_q4(x: Operand, experts: Operand, *arguments: Any, target: Target) -> Iterator[Dispatch]:
    *pairs, group_size, count, out = arguments
    choice = choice_of(x, experts, count, out)
    rows = out.numel // out.shape[-1]
    gated = gated_product(x.shape[-1], tuple(pairs), group_size, choice, rows)
    gated, launches = gated.grouped(target)
    yield from launches
    yield from gated.dispatches(x, out, target)


@rewrite("gated_experts")
def gated_experts(flow: Flow) -> Iterator[Replacement]:
    """silu(gate) · up, where both are products of one x with the same experts."""
    for call in flow.of("pteron.silu_mul"):
        products = [flow.maker(value, PRODUCT) for value in call.inputs]
        gate, up = products
        if gate is None or up is None or gate is up or gate.inputs[1] is None:
            continue
        x, experts, weights, scales, group, count = gate.inputs
        shapes = [getattr(product.inputs[2], "shape_max", None) for product in (gate, up)]
        if up.inputs[:2] != (x, experts) or up.inputs[4:] != (group, count) or shapes[0] != shapes[1]:
            continue
        inputs = (x, experts, weights, scales, *up.inputs[2:4], group, count)
        yield Replacement((gate, up, call), Call(call.node, OPERATORS[GATED], inputs, call.outputs))
