"""A mixture of experts with 4-bit weights as one operator: optionally an RMS norm, the router,
silu(gate) · up and down of the chosen experts, their weighted sum, and optionally a residual.

Few rows take four launches if the device allows it: the router's product and the gated product norm x
themselves, and the last product runs over the results of a token's experts side by side, times their
weights. For many rows, tokens are grouped by expert for tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pteron.dtypes import DType
from pteron.families.experts.gated import GATED, PRODUCT, gated_product
from pteron.families.experts.route import combine, route
from pteron.families.linear.operators import linear
from pteron.families.norm.norm import rms_norm
from pteron.families.quantized import digits
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.formats import words_of
from pteron.families.quantized.linear_q4 import product
from pteron.families.quantized.packing import Choice, PackedWeights
from pteron.families.quantized.products import add_residual, sum_shape
from pteron.graph import Tensor
from pteron.ops import (
    OPERATORS,
    Call,
    Dispatch,
    LiveShape,
    Operand,
    Scratch,
    Target,
    most,
    numel,
    op,
    require,
)
from pteron.ops.rewrite import Flow, Replacement, fits_sum, keeps_shape, rewrite, shape_of
from pteron.ops.row_layout import row_groups, row_layout
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

_NAME = "pteron.experts_mlp_q4"
_ROUTER_TALL = 4  # rows of x that one read of the router's matrix serves
_ROUTER_QUADS_MAX = 1024  # per lane
_CHUNK = 8 * digits.CHUNK  # weights of a load of q4_digits
_ROUTING = slice(5, 13)  # arguments of pteron.route


@dataclass(frozen=True, slots=True)
class _PartsChoice(Choice):
    """Rows of x as `kept` parts side by side, each with a matrix and a share (lib/experts.wgsl)."""

    kept: int = 1
    each: int = 1  # chunks of a part
    shares: Operand | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        sizes = {"MATRICES": self.matrices, "KEPT": self.kept, "EACH": self.each}
        return {**sizes, "experts": self.experts, "shares": self.shares}


def _shape(*inputs: Any) -> LiveShape:
    x, gain, router, (gate, up, down), residual = *inputs[:2], inputs[3], inputs[13:19:2], inputs[20]
    count, depth = router.shape
    require(gain is None or gain.shape == x.shape[-1:], "the gain must have x's columns", x, gain)
    fits = x.shape[-1] == depth and depth % 4 == 0
    require(fits, "the router must have x's columns, a multiple of four", x, router)
    fits = gate.shape == up.shape and count > 0 == gate.shape[0] % count == down.shape[0] % count
    require(fits, f"weights must be {count} matrices, one after the other", gate, up, down)
    shape = (x.numel // depth if depth else 0, down.shape[0] // count)
    return sum_shape(shape, residual) if residual else shape


@op(
    _NAME,
    "x gain? eps:float router router_bias? k:int scoring:str correction? groups:int kept_groups:int "
    "group_best:int normalised:bool scale:float gate gate_scales up up_scales down down_scales "
    "group_size:int residual? -> out",
    shape=_shape,
)
def experts_mlp_q4(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    x, gain, eps, router, router_bias = arguments[:5]
    *pairs, down, down_scales, group_size, residual, out = arguments[13:]
    (count, depth), k = router.shape, int(arguments[5])
    tokens, width = x.numel // depth, pairs[0].shape[0] // count
    if tokens == 0:
        return
    x = x.reshaped((tokens, depth))
    shares, experts = (_scratch(dtype, (tokens, k), target) for dtype in (DType.F32, DType.I32))
    gated = gated_product(depth, tuple(pairs), group_size, Choice(experts, count, k), tokens * k)
    if gain is not None and not gated.is_in_digits(target):
        normed = x.scratch()
        yield from rms_norm(x, gain, eps, normed, target=target)
        x, gain = normed, None
    logits = x.scratch((tokens, count))
    yield from _router(x, gain, eps, router, router_bias, logits, target)
    yield from route(logits, *arguments[_ROUTING], shares, experts, target=target)
    gated, launches = gated.grouped(target)
    yield from launches
    hidden = x.scratch((tokens, k, width))
    yield from gated.dispatches(x, hidden, target, gain, eps)
    packed = words_of(down, down_scales, group_size, width)
    packed = replace(packed, columns=down.shape[0] // count, choice=replace(gated.choice, share=1))
    side_by_side = None if gated.choice.grouping else _side_by_side(packed, k, shares, tokens, target)

    def last(out: Operand, residual: Operand | None) -> Iterator[Dispatch]:
        if side_by_side:
            yield digits.product(hidden, side_by_side, Epilogue((out,), residual=residual), target)
            return
        each = x.scratch((tokens, k, packed.columns))
        yield from product(hidden, packed, Epilogue((each,)), target)
        yield from combine(each, shares, out, residual)

    yield from add_residual((tokens, packed.columns), residual, out, last)


def _side_by_side(
    packed: PackedWeights, k: int, shares: Operand, tokens: int, target: Target
) -> PackedWeights | None:
    """The weights for a product over all experts of a token at once; None if no kernel takes them."""
    choice, depth = packed.choice, packed.depth
    assert choice is not None
    parts = _PartsChoice(choice.experts, choice.matrices, 1, None, k, depth // _CHUNK, shares)
    wide = replace(packed, depth=k * depth, choice=parts)
    can_run = depth % _CHUNK == 0 and packed.fits(target) and digits.suits(target, tokens, wide)
    return wide if can_run else None


def _router(
    x: Operand,
    gain: Operand | None,
    eps: float,
    matrix: Operand,
    bias: Operand | None,
    logits: Operand,
    target: Target,
) -> Iterator[Dispatch]:
    """The product with the router's matrix, after a norm if there is a gain; only GPUs take a gain."""
    (rows, depth), columns = x.shape, matrix.shape[0]
    tall = min(rows, _ROUTER_TALL)
    layout = row_layout(target, -(-rows // tall) * columns, depth // 4)
    is_deep = depth // 4 > _ROUTER_QUADS_MAX * layout["LANES"]
    if gain is None and (target.is_cpu or is_deep):
        yield from linear(x, matrix, bias, logits, target=target)
        return
    yield Dispatch(
        kernel("router"),
        **layout,
        QUADS=depth // 4,
        TALL=tall,
        EPS=eps,
        x=x,
        gain=gain,
        matrix=matrix,
        bias=bias,
        logits=logits,
        rows=rows,
        columns=columns,
        groups=row_groups(target, layout, -(-rows // tall) * columns),
    )


def _scratch(dtype: DType, shape: LiveShape, target: Target) -> Operand:
    storage = target.storage(dtype)
    return Operand(Tensor(-1, dtype, tuple(map(most, shape))), shape, storage, Scratch(numel(shape), storage))


@rewrite("experts_mlp")
def experts_mlp(flow: Flow) -> Iterator[Replacement]:
    """The router, its experts' products and their weighted sum."""
    for total in flow.of("pteron.combine.default"):
        results, weights = total.inputs
        down, routing = flow.maker(results, PRODUCT), flow.maker(weights, "pteron.route.default")
        gated = flow.maker(down.inputs[0], GATED) if down else None
        router = flow.maker(routing.inputs[0], "aten.linear.default") if routing else None
        if not (down and gated and routing and router):
            continue
        x, experts, *pairs, group, count = gated.inputs
        is_one = down.inputs[1] is experts and down.inputs[4:] == (group, count)
        is_one = is_one and routing.outputs == (weights, experts) and router.inputs[0] is x
        if is_one and (shape_of(router.inputs[1]) or (0,))[0] == count:
            factors = (*router.inputs[1:], *routing.inputs[1:], *pairs, *down.inputs[2:4], group, None)
            new = Call(total.node, OPERATORS[_NAME], (x, None, 0.0, *factors), total.outputs)
            yield Replacement((router, routing, gated, down, total), new)


@rewrite("norm_experts")
def norm_experts(flow: Flow) -> Iterator[Replacement]:
    """A mixture of experts of the result of an RMS norm, if nothing else reads it."""
    for call in flow.of(_NAME):
        value, views = flow.behind_views(call.inputs[0], keeps_shape)
        norm = flow.maker(value, "et_vk.rms_norm.default")
        if norm and call.inputs[1] is None and len(shape_of(norm.inputs[1]) or ()) == 1:
            inputs = (*norm.inputs, *call.inputs[3:])
            new = Call(call.node, call.operator, inputs, call.outputs)
            yield Replacement((norm, *views, call), new)


@rewrite("experts_add")
def experts_add(flow: Flow) -> Iterator[Replacement]:
    """A mixture of experts plus a tensor of its size and type, in any order."""
    for total in flow.of("aten.add.Tensor"):
        first, second, alpha = total.inputs
        for made, addend in ((first, second), (second, first)) if alpha == 1 else ():
            value, views = flow.behind_views(made, keeps_shape)
            call = flow.maker(value, _NAME)
            if call and call.inputs[-1] is None and fits_sum(call, value, addend, total.outputs[0]):
                new = Call(total.node, call.operator, (*call.inputs[:-1], addend), total.outputs)
                yield Replacement((call, *views, total), new)
