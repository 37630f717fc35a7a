"""A language model's delegate graph, run by PyTorch: the reference for logits, and a speed to compare with.

Weights are dequantised once into the element type asked for; every operator is the plain PyTorch expression
of its meaning.
"""

# mypy: ignore-errors
# (PyTorch is optional and untyped here.)

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional

from pteron.graph import Graph, SymInt, Tensor, ValueList


class TorchReference:
    """Runs a graph of the operators that exported language models use."""

    def __init__(self, graph: Graph, dtype: torch.dtype, device: str) -> None:
        self.graph, self.dtype, self.device = graph, dtype, device
        self.fixed: dict[object, torch.Tensor] = {}

    @torch.no_grad()
    def __call__(self, tokens: torch.Tensor, position: int) -> torch.Tensor:
        values: dict[int, object] = {self.graph.inputs[0].id: tokens}
        for node in self.graph.nodes:
            *inputs, output = node.args
            result = getattr(self, node.name.split(".")[-2].lstrip("_") if "." in node.name else node.name)(
                position, *(self.value(value, values) for value in inputs)
            )
            targets = output.items if isinstance(output, ValueList) else (output,)
            for target, item in zip(
                targets, result if isinstance(output, ValueList) else (result,), strict=True
            ):
                values[target.id] = item
        return values[self.graph.outputs[0].id]

    def value(self, value: object, values: dict[int, object]) -> object:
        if isinstance(value, Tensor):
            if value.id in values:
                return values[value.id]
            return self.constant(value) if value.constant is not None else None
        if isinstance(value, SymInt):
            return values[value.id]
        if isinstance(value, ValueList):
            return [self.value(item, values) for item in value.items]
        return value

    def constant(self, tensor: Tensor) -> torch.Tensor:
        if tensor.id not in self.fixed:
            is_stored = tensor.constant.bytes().size > 0  # states of zeros are not
            array = (
                tensor.constant.numpy().copy()
                if is_stored
                else np.zeros(tensor.shape_max, tensor.dtype.numpy)
            )
            loaded = torch.from_numpy(array).to(self.device)
            self.fixed[tensor.id] = loaded.to(self.dtype) if loaded.is_floating_point() else loaded
        return self.fixed[tensor.id]

    def dequantised(self, weights: torch.Tensor, scales: torch.Tensor, group: int) -> torch.Tensor:
        """4-bit rows [n, k/2] and scales [n, groups] as a matrix [n, k]."""
        key = (weights.data_ptr(), scales.data_ptr())
        if key not in self.fixed:
            nibbles = torch.stack([weights & 15, weights >> 4], -1).flatten(1).to(torch.int8) - 8
            matrix = nibbles[:, : scales.shape[1] * group].to(self.dtype).unflatten(1, (-1, group))
            self.fixed[key] = (matrix * scales[:, :, None].to(self.dtype)).flatten(1)
        return self.fixed[key]

    # Operators, by the middle part of their names ------------------------------------------------

    def prepack(self, _, x):
        return x

    def clone(self, _, x, *rest):
        return x

    def sym_size(self, _, x, dim):
        return x.shape[dim]

    def select_as_symint(self, position, *_):
        return position

    def add(self, _, a, b, alpha=1):
        return a + b * alpha if alpha != 1 else a + b

    def mul(self, _, a, b):
        return a * b

    def sigmoid(self, _, x):
        return torch.sigmoid(x)

    def view_copy(self, _, x, size):
        return x.reshape(list(size))

    def slice_copy(self, _, x, dim, start, end, step):
        return x[start:end] if dim == 0 else x.narrow(dim, start, end - start)

    def select_copy(self, _, x, dim, index):
        return x.select(dim, index)

    def embedding(self, _, weight, indices, *rest):
        return functional.embedding(indices, weight)

    def embedding_q4gsw(self, _, weight, scales, group, indices, linear):
        rows = weight[indices.flatten()]
        nibbles = torch.stack([rows & 15, rows >> 4], -1).flatten(1).to(torch.int8) - 8
        spread = nibbles.to(self.dtype).unflatten(1, (-1, group)) * scales[indices.flatten()][:, :, None]
        return spread.flatten(1).reshape(*indices.shape, -1).to(self.dtype)

    def linear(self, _, x, weight, bias):
        return functional.linear(x, weight, bias)

    def linear_q4gsw(self, _, x, weights, scales, group, bias):
        transposed = self.fixed.setdefault(
            ("scales", scales.data_ptr()), scales.T[: weights.shape[0]].contiguous()
        )
        return functional.linear(x, self.dequantised(weights, transposed, group), bias)

    def weight_int8pack_mm(self, _, x, weights, scales):
        return functional.linear(x, weights.to(self.dtype)) * scales

    def rms_norm(self, _, x, weight, eps):
        wide = x.float() if self.dtype != torch.float64 else x
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(self.dtype) * weight

    def apply_rotary_emb(self, _, q, k, cos, sin):
        def rotate(x):
            even, odd = x[..., ::2], x[..., 1::2]
            c, s = cos[None, :, None], sin[None, :, None]
            return torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2)

        return rotate(q), rotate(k)

    def apply_rotary_emb_hf(self, _, q, k, cos, sin, start):
        def rotate(x):
            rows, half = slice(start, start + x.shape[1]), cos.shape[1] // 2
            turned, kept = x[..., : 2 * half], x[..., 2 * half :]
            crossed = torch.cat([-turned[..., half:], turned[..., :half]], -1)
            return torch.cat([turned * cos[rows, None] + crossed * sin[rows, None], kept], -1)

        return rotate(q), rotate(k)

    def sdpa_with_kv_cache(self, position, q, k, v, k_cache, v_cache, start, *rest):
        steps = q.shape[1]
        k_cache[:, start : start + steps] = k
        v_cache[:, start : start + steps] = v
        keys, values = (c[:, : start + steps].transpose(1, 2) for c in (k_cache, v_cache))
        mask = torch.ones(steps, start + steps, dtype=torch.bool, device=self.device).tril(start)
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), keys, values, attn_mask=mask, scale=1 / math.sqrt(q.shape[-1]), enable_gqa=True
        )
        return out.transpose(1, 2)
