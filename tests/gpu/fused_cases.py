"""Arguments and oracles of 4-bit products with a norm, a gate or block maxima, and a check of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from arguments import Argument, tensor, weight
from check import check_op
from quantized_cases import groups_of, packed

from pteron.ops import Target
from pteron.reference.products import matrix_q4, matrix_q8

FUSED, DYNAMIC_ADD, FUSED_INT8 = (
    f"pteron.{name}" for name in ("linear_q4", "linear_dq8ca_q4_add", "linear_dq8ca_q4")
)
LIVE = {"M": (33, 1, 4, 2, 3)}


def layer(
    multiply: Callable[[Any, Any], Any],
    x: Any,
    gain: Any,
    eps: float,
    weights: Any,
    scales: Any,
    biases: Any,
    group: int,
    bits: int,
    minima: Any,
    residual: Any,
    gated: bool,
) -> Any:
    """Products with a norm before them; biases, a gate and a residual behind."""
    if gain is not None:
        x = x * gain * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    triples = zip(weights, scales, minima or [None] * len(weights), strict=True)
    outs = [multiply(x, matrix(w, s, least, group, bits, x.shape[-1]).T) for w, s, least in triples]
    outs = [out + bias[: out.shape[-1]] for out, bias in zip(outs, biases, strict=True)] if biases else outs
    if gated:
        outs = [torch.nn.functional.silu(outs[0]) * outs[1]]
    return outs if residual is None else [outs[0].reshape(residual.shape) + residual]


fused = partial(layer, torch.matmul)


def matrix(weights: Any, scales: Any, minima: Any, group: int, bits: int, depth: int) -> Any:
    if bits == 4:
        return matrix_q4(weights, scales, group, depth)
    return matrix_q8(weights, scales, minima, group)


def steps(x: Any, least: float | None) -> tuple[Any, Any]:
    """Rows as int8 less their zero points, and their scales: in f32, as the operators are defined."""
    x = x.to(torch.float32)
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).tiny if least is None else least)
    zero = (-128 - torch.round(low / scale)).clamp(-128, 127)
    whole = torch.clamp(torch.round(x / scale) + zero, -128, 127) - zero
    return whole.to(torch.float64), scale.to(torch.float64)


def fused_int8(*arguments: Any) -> Any:
    """The same of activations as int8; sums of weights and the smallest scale come before the residual."""
    *first, _, least, residual, gated = arguments

    def multiply(x: Any, matrix: Any) -> Any:
        whole, scale = steps(x, least)
        return whole @ matrix * scale

    return layer(multiply, *(*first, 4, None, residual, gated))


def factors(depth: int, *columns: int, group: int = 32) -> tuple[list[Argument], list[Argument]]:
    """Weights and scales such that sums are of the order of 1."""
    size = 0.1 / np.sqrt(depth)
    weights = [weight(values=packed(count, depth), dtype="u8") for count in columns]
    scales = [weight(-(-depth // group), -(-count // 4) * 4, low=size / 2, high=size) for count in columns]
    return weights, scales


def check(target: Target, depth: int, *columns: int, **options: Any) -> None:
    norm = (weight(depth, low=0.5, high=2), 1e-5) if options.pop("norm", False) else (None, 0.0)
    biases = [weight(count + 2) for count in columns] if options.pop("biases", False) else None
    residual, gated = options.pop("residual", None), options.pop("gated", False)
    group, bits, minima = options.pop("group", 32), options.pop("bits", 4), None
    if bits == 4:
        weights, scales = factors(depth, *columns, group=group)
    else:
        has_minima = options.pop("minima", False)
        parts = [groups_of(count, depth, group, minima=has_minima) for count in columns]
        weights, scales, minima = ([part[place] for part in parts] for place in range(3))
        minima = minima if has_minima else None
    arguments = (*norm, weights, scales, biases, group, bits, minima, residual, gated)
    options = {"live": LIVE, "tolerance": 5e-6 if bits == 4 else 5e-5, **options}
    check_op(FUSED, tensor(1, "M", depth), *arguments, oracle=fused, target=target, **options)


CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((96, 67), {"norm": True}),
    ((96, 64, 7, 33), {"norm": True}),
    ((96, 5, 66), {"biases": True}),
    ((64, 67, 67), {"norm": True, "gated": True}),
    ((64, 1, 1), {"gated": True, "biases": True}),
    ((64, 68, 68), {"gated": True, "biases": True}),
    ((1024, 8, 8), {"norm": True, "gated": True}),  # deep enough to be split
    ((1028, 7, 7), {"gated": True}),
    ((96, 64, 8, 36), {"biases": True}),
    ((96, 67), {"residual": tensor("M", 67), "biases": True}),
    ((96, 67), {"norm": True, "residual": tensor(1, "M", 67)}),
    ((96, 67), {"bits": 8, "norm": True}),
    ((96, 64, 7, 33), {"bits": 8, "norm": True, "minima": True}),
    ((64, 67, 67), {"bits": 8, "norm": True, "gated": True, "minima": True}),
    ((1024, 8, 8), {"bits": 8, "gated": True, "biases": True}),
    ((96, 5, 66), {"bits": 8, "group": 16, "biases": True}),  # two scales in a chunk
    ((96, 5, 66), {"bits": 8, "group": 16, "minima": True, "norm": True}),
    ((1088, 67), {"bits": 8, "group": 1088, "residual": tensor("M", 67)}),  # one scale in a row
]
