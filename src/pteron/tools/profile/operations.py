"""The arithmetic operations of a call at its live shapes: matrix products, convolutions and attention. A
multiply-add counts as two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pteron.graph import Shape, SymInt, Tensor
from pteron.graph.values import numel
from pteron.ops import Call
from pteron.plan.planner import Planning

# The call's inputs by name (tensors as their live shapes, live integers as numbers), its output's shape.
Formula: TypeAlias = Callable[[Mapping[str, Any], Shape], int]


def operations(call: Call, planned: Planning) -> int | None:
    """The number of operations of a call; None for operators without a formula."""
    formula = _formula(call.operator.name)
    if formula is None or not isinstance(call.outputs[0], Tensor):
        return None
    names = [argument.name for argument in call.operator.signature.inputs]
    values = {name: live(value, planned) for name, value in zip(names, call.inputs, strict=True)}
    return formula(values, live(call.outputs[0], planned))


def live(value: Any, planned: Planning) -> Any:
    """The live shape of a tensor, the value of a live integer, other values unchanged."""
    if isinstance(value, Tensor):
        return planned.shapes.get(value.id, value.shape_max)
    return int(planned.integers[value.id]) if isinstance(value, SymInt) else value


def _product(values: Mapping[str, Any], out: Shape) -> int:
    """A matrix product; the sum runs over the last dim of the first input."""
    x = values["mat1"] if "mat1" in values else next(iter(values.values()))
    return 2 * numel(out) * int(x[-1])


def _weight_gradient(values: Mapping[str, Any], out: Shape) -> int:
    """The sum runs over all dims of the first input except the last."""
    x = next(iter(values.values()))
    return 2 * numel(out) * numel(x[:-1])


def _convolution(values: Mapping[str, Any], out: Shape) -> int:
    """Every output sums one window; transposed, every input contributes to one window."""
    placed = values["input"] if values["transposed"] else out
    return 2 * numel(placed) * numel(values["weight"][1:])


def _quantized_convolution(values: Mapping[str, Any], out: Shape) -> int:
    window = numel(tuple(values["kernel_size"]))
    if "output_padding" in values:  # transposed
        return 2 * numel(values["x"]) * window * int(out[1]) // int(values["groups"])
    return 2 * numel(out) * window * int(values["x"][1]) // int(values["groups"])


def _cached_attention(values: Mapping[str, Any], out: Shape) -> int:
    """A query sees itself and the positions before it; with a mask, the whole context."""
    batch, steps, heads, width = values["query"]
    start = int(values["start_pos"])
    if values["is_causal"] and values["attn_mask"] is None:
        seen = steps * start + steps * (steps + 1) // 2
    else:
        seen = steps * (start + steps)
    return 4 * int(batch * heads * width * seen)


def _attention(values: Mapping[str, Any], out: Shape) -> int:
    """Scores and sums of every query (batch, heads, steps, width) over all keys."""
    return 4 * numel(values["q"]) * int(values["k"][2])


_EXACT: dict[str, Formula] = {
    "aten.mm.default": _product,
    "aten.bmm.default": _product,
    "aten.addmm.default": _product,
    "aten._weight_int8pack_mm.default": _product,
    "et_vk.linear_dW.default": _weight_gradient,
    "aten.convolution.default": _convolution,
    "et_vk.conv_with_clamp.default": _convolution,
    "sdpa_with_kv_cache.default": _cached_attention,
    "custom_sdpa.default": _cached_attention,
    "et_vk.sdpa.default": _attention,
}


def _formula(name: str) -> Formula | None:
    if name in _EXACT:
        return _EXACT[name]
    if name.startswith("et_vk.q8ta_conv2d"):
        return _quantized_convolution
    return _product if "linear" in name else None
