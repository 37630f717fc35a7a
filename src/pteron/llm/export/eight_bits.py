"""Matrices of 8-bit integers with a scale for each row, in the form that the delegate's exporter recognises.

ExecuTorch's exporter of language models has no such mode that reaches the GPU: a linear layer of weights
that are widened from 8 bits does, as one operator (`aten._weight_int8pack_mm`).
"""

from __future__ import annotations

from typing import Any

HIGHEST = 127


def to_eight_bits(model: Any) -> None:
    """Replace all linear layers of a model."""
    import torch

    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, eight_bit_linear(child))


def eight_bit_linear(linear: Any) -> Any:
    """The module that takes a linear layer's place."""
    import torch

    widen = torch.ops.quantized_decomposed.dequantize_per_channel.default

    class EightBitLinear(torch.nn.Module):  # type: ignore[misc]  # untyped
        def __init__(self, weight: Any, bias: Any) -> None:
            super().__init__()
            scales = weight.abs().amax(1).div(HIGHEST).clamp_min(torch.finfo(torch.float32).tiny)
            self.register_buffer("weight", (weight / scales[:, None]).round().to(torch.int8))
            self.register_buffer("scales", scales)
            self.register_buffer("zeros", torch.zeros(len(weight), dtype=torch.int64))
            self.bias = bias

        def forward(self, values: Any) -> Any:
            weight = widen(self.weight, self.scales, self.zeros, 0, -HIGHEST, HIGHEST, torch.int8)
            return torch.nn.functional.linear(values, weight, self.bias)

    return EightBitLinear(linear.weight.detach(), linear.bias)
