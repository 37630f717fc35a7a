"""The decoder of a checkpoint in plain PyTorch, one layer at a time, for a batch of texts.

In: the checkpoint's parameters and weights. Methods return the inputs of each matrix, which GPTQ needs.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pteron.llm.export.checkpoint import EMBEDDING, OUTPUT, Weights

Tensor: TypeAlias = Any  # torch.Tensor, which is untyped here


class Decoder:
    """Hidden states are [texts, tokens, dim]. Weights are looked up at each use: the caller may replace
    them."""

    def __init__(self, parameters: dict[str, Any], weights: Weights) -> None:
        self.parameters, self.weights = parameters, weights
        self.layers: int = parameters["n_layers"]
        self.heads: int = parameters["n_heads"]
        self.kv_heads: int = parameters.get("n_kv_heads") or self.heads
        self.head_dim: int = parameters.get("head_dim") or parameters["dim"] // self.heads

    def embed(self, tokens: Tensor) -> Tensor:
        return self.weights[EMBEDDING][tokens]

    def logits(self, hidden: Tensor) -> Tensor:
        return self._linear(self.norm(hidden, "norm"), OUTPUT.removesuffix(".weight"))

    def attention_input(self, hidden: Tensor, layer: int) -> Tensor:
        """The input of wq, wk and wv."""
        return self.norm(hidden, f"layers.{layer}.attention_norm")

    def attended(self, inputs: Tensor, layer: int) -> Tensor:
        """The attention's result: the input of wo."""
        from torch.nn.functional import scaled_dot_product_attention

        name = f"layers.{layer}.attention"
        queries = self._heads(inputs, f"{name}.wq", self.heads)
        keys = self._heads(inputs, f"{name}.wk", self.kv_heads)
        values = self._heads(inputs, f"{name}.wv", self.kv_heads)
        if self.parameters.get("use_qk_norm"):
            queries, keys = self.norm(queries, f"{name}.q_norm_fn"), self.norm(keys, f"{name}.k_norm_fn")
        queries, keys = self._rotate(queries), self._rotate(keys)
        found = scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        return found.transpose(1, 2).flatten(2)

    def after_attention(self, hidden: Tensor, attended: Tensor, layer: int) -> Tensor:
        return hidden + self._linear(attended, f"layers.{layer}.attention.wo")

    def feed_forward_input(self, hidden: Tensor, layer: int) -> Tensor:
        """The input of w1 and w3."""
        return self.norm(hidden, f"layers.{layer}.ffn_norm")

    def gated(self, inputs: Tensor, layer: int) -> Tensor:
        """The input of w2."""
        from torch.nn.functional import silu

        name = f"layers.{layer}.feed_forward"
        return silu(self._linear(inputs, f"{name}.w1")) * self._linear(inputs, f"{name}.w3")

    def after_feed_forward(self, hidden: Tensor, gated: Tensor, layer: int) -> Tensor:
        return hidden + self._linear(gated, f"layers.{layer}.feed_forward.w2")

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits, [texts, tokens, vocabulary]."""
        hidden = self.embed(tokens)
        for layer in range(self.layers):
            attended = self.attended(self.attention_input(hidden, layer), layer)
            hidden = self.after_attention(hidden, attended, layer)
            gated = self.gated(self.feed_forward_input(hidden, layer), layer)
            hidden = self.after_feed_forward(hidden, gated, layer)
        return self.logits(hidden)

    def norm(self, values: Tensor, name: str) -> Tensor:
        from torch.nn.functional import rms_norm

        return rms_norm(
            values, values.shape[-1:], self.weights[f"{name}.weight"], self.parameters["norm_eps"]
        )

    def _linear(self, values: Tensor, name: str) -> Tensor:
        from torch.nn.functional import linear

        return linear(values, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _heads(self, values: Tensor, name: str, heads: int) -> Tensor:
        """[texts, heads, tokens, head_dim]"""
        return self._linear(values, name).unflatten(-1, (heads, self.head_dim)).transpose(1, 2)

    def _rotate(self, values: Tensor) -> Tensor:
        """RoPE: each pair of columns is a complex number, rotated by an angle proportional to the
        position."""
        import torch

        rotary = int(self.head_dim * self.parameters.get("partial_rotary_factor", 1.0))
        rotated, kept = values[..., :rotary], values[..., rotary:]
        frequencies = self.parameters["rope_theta"] ** (
            -torch.arange(0, rotary, 2, dtype=torch.float64) / rotary
        )
        frequencies /= torch.tensor(self.parameters.get("rope_scaling_short_factor") or 1.0).double()
        positions = torch.arange(values.shape[2], dtype=torch.float64)
        angles = torch.outer(positions, frequencies)
        cos, sin = angles.cos().to(values.dtype), angles.sin().to(values.dtype)
        in_halves = self.parameters.get("use_hf_rope")
        real, imaginary = rotated.chunk(2, -1) if in_halves else (rotated[..., 0::2], rotated[..., 1::2])
        parts = [real * cos - imaginary * sin, real * sin + imaginary * cos]
        rotated = torch.cat(parts, -1) if in_halves else torch.stack(parts, -1).flatten(-2)
        return torch.cat([rotated, kept], -1)
