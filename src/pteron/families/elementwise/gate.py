"""silu(x) · y in one call, as gated feed-forward layers compute it."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.elementwise.binary import binary
from pteron.ops import OPERATORS, Call
from pteron.ops.rewrite import Flow, Replacement, orders, rewrite

# Rounded as the parts round it: where int8 is made of the result, one bit more or less may be one step of it.
binary("pteron.silu_mul", "a * (1.0 / (1.0 + exp(-a))) * b")


@rewrite("silu_mul")
def silu_mul(flow: Flow) -> Iterator[Replacement]:
    """x · sigmoid(x) · y, whichever side of a product each factor stands on."""
    for product in flow.of("aten.mul.Tensor"):
        for gated, y in orders(product):
            gate = flow.maker(gated, "aten.mul.Tensor")
            for x, factor in orders(gate) if gate else ():
                sigmoid = flow.maker(factor, "aten.sigmoid.default")
                if gate and sigmoid and sigmoid.inputs == (x,):
                    new = Call(product.node, OPERATORS["pteron.silu_mul"], (x, y), product.outputs)
                    yield Replacement((sigmoid, gate, product), new)
