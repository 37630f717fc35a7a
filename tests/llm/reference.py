"""A Llama-like decoder in a screen of PyTorch: what an exported checkpoint has to compute.

It takes the parameters and weights of a Checkpoint and shares no code with ExecuTorch's model. No cache: a
call computes the logits at every position of one sequence.
"""

# mypy: ignore-errors
# (torch is untyped to mypy here)

import math

import torch
from torch.nn.functional import linear, scaled_dot_product_attention, silu


class Reference:
    def __init__(self, parameters, weights) -> None:
        self.p, self.w = parameters, weights
        self.heads = parameters["n_heads"]
        self.kv_heads = parameters["n_kv_heads"]
        self.head_dim = parameters.get("head_dim") or parameters["dim"] // self.heads

    @torch.no_grad()
    def logits(self, ids) -> torch.Tensor:
        x = self.w["tok_embeddings.weight"][torch.tensor(ids)]
        for layer in range(self.p["n_layers"]):
            x = x + self.attention(
                f"layers.{layer}.attention", self.norm(x, f"layers.{layer}.attention_norm")
            )
            x = x + self.feed_forward(
                f"layers.{layer}.feed_forward", self.norm(x, f"layers.{layer}.ffn_norm")
            )
        return linear(self.norm(x, "norm"), self.w["output.weight"])

    def norm(self, x, name):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.p["norm_eps"])
        return x * scale * self.w[f"{name}.weight"]

    def project(self, x, name, heads):
        y = linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))
        return y.view(len(x), heads, self.head_dim)

    def attention(self, name, x):
        q = self.project(x, f"{name}.wq", self.heads)
        k = self.project(x, f"{name}.wk", self.kv_heads)
        v = self.project(x, f"{name}.wv", self.kv_heads)
        if self.p.get("use_qk_norm"):
            q, k = self.norm(q, f"{name}.q_norm_fn"), self.norm(k, f"{name}.k_norm_fn")
        q, k = self.rotate(q), self.rotate(k)
        repeat = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        y = scaled_dot_product_attention(*(t.transpose(0, 1) for t in (q, k, v)), is_causal=True)
        return linear(y.transpose(0, 1).flatten(1), self.w[f"{name}.wo.weight"])

    def rotate(self, x):
        """Each pair of columns, as a complex number, turns with its position."""
        rotary = int(self.head_dim * self.p.get("partial_rotary_factor", 1.0))
        turned, kept = x[..., :rotary], x[..., rotary:]
        frequency = self.p["rope_theta"] ** (-torch.arange(0, rotary, 2, dtype=torch.float64) / rotary)
        frequency /= torch.tensor(self.p.get("rope_scaling_short_factor") or 1.0, dtype=torch.float64)
        angle = torch.outer(torch.arange(len(x), dtype=torch.float64), frequency)[:, None]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        if self.p.get("use_hf_rope"):
            real, imaginary = turned.chunk(2, -1)
            turned = torch.cat([real * cos - imaginary * sin, real * sin + imaginary * cos], -1)
        else:
            real, imaginary = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], -1).flatten(-2)
        return torch.cat([turned, kept], -1)

    def feed_forward(self, name, x):
        gate, up = linear(x, self.w[f"{name}.w1.weight"]), linear(x, self.w[f"{name}.w3.weight"])
        return linear(silu(gate) * up, self.w[f"{name}.w2.weight"])


def perplexity(logits, ids) -> float:
    """How surprised a model is by each next token: e to the mean of their negative log-probabilities."""
    loss = torch.nn.functional.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:]))
    return math.exp(loss.item())
