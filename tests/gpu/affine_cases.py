"""Quantising and dequantising by PyTorch's own operators, as oracles."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the operators

DECOMPOSED = "quantized_decomposed."
EXACT = 1e-9  # below the step between floats
TYPES = {"i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32}
RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "i32": (-1000, 1000)}


def eager(name: str) -> Any:
    """PyTorch's operator in float32, element types by name. Quantised inputs come in the type named."""
    operator = getattr(torch.ops.quantized_decomposed, name)
    of_numbers = name.startswith("quantize")

    def oracle(x: Any, *arguments: Any) -> Any:
        kind = next(TYPES[value] for value in arguments if isinstance(value, str))
        plain = [TYPES[value] if isinstance(value, str) else _narrow(value) for value in arguments]
        if of_numbers:
            return operator(x.to(torch.float32), *plain)
        types = () if "token" not in name else (torch.float32,)  # what to dequantise to, where not by default
        return operator(x.to(kind), *plain[:-1], *types)

    return oracle


def _narrow(value: Any) -> Any:
    """A tensor of parameters in 32 bits."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(torch.float32 if value.is_floating_point() else torch.int32)


def expanded(parameter: Any, x: Any, block: list[int]) -> Any:
    """A parameter per block as one per element."""
    counts = [size // along for size, along in zip(x.shape, block, strict=True)]
    result = parameter.reshape(counts)
    for dim, along in enumerate(block):
        result = result.repeat_interleave(along, dim)
    return result


def quantize_affine(x: Any, block: Any, scale: Any, zero: Any, kind: str, low: Any, high: Any) -> Any:
    low, high = (RANGES[kind][0] if low is None else low), (RANGES[kind][1] if high is None else high)
    zeros = 0 if zero is None else expanded(zero, x, block).float()
    steps = torch.round(x.float() * (1.0 / expanded(scale.float(), x, block)))
    return torch.clamp(steps + zeros, low, high)


def dequantize_affine(x: Any, block: Any, scale: Any, zero: Any, *rest: Any) -> Any:
    zeros = 0 if zero is None else expanded(zero, x, block).float()
    return (x.float() - zeros) * expanded(scale.float(), x, block)
