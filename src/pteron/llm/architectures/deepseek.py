"""DeepSeek V2 and V3: latent attention (MLA), experts in groups, shared experts.

Keys and values are products of one latent vector per token. The cache holds that vector and a rotated key
that all heads share; instead of keys and values, queries and results are multiplied with their matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pteron.errors import UnsupportedError
from pteron.format.stored_tensor import Array, StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.experts import (
    EXPERTS,
    GGUF_EXPERTS,
    experts_after_dense,
    flattened,
    groups_of,
    sigmoid_experts,
)
from pteron.llm.architectures.family import Family, require_settings, stack
from pteron.llm.architectures.names import GGUF, HUGGING_FACE
from pteron.llm.architectures.parts import Decoder, Part, RmsNorm
from pteron.llm.architectures.rotary import Rotary, rotary_of
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


@dataclass(frozen=True)
class LatentAttention:
    """Attention over latent vectors of `rank` columns and shared keys of `rotated` columns."""

    heads: int
    rank: int
    plain: int  # columns of a head's query that are not rotated
    rotated: int
    value: int  # columns of a head's result
    rotary: Rotary
    scale: float
    norm: Part

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        one, tokens = x.sizes[:2]
        queries = self._queries(net, x, place)
        together = net.linear(x, f"{place}.kv_a")
        latent, key = _split(net, together, self.rank, self.rotated)
        latent = self.norm(net, latent, f"{place}.kv_a_norm")
        plain, rotated = _split(net, queries, self.plain, self.rotated)
        rotated, key = self.rotary(net, rotated, net.view(key, one, tokens, 1, self.rotated))
        flat = net.view(plain, tokens, self.heads, self.plain)
        seen = net.experts_linear(flat, None, f"{place}.k_b", self.heads)
        query = _joined(net, net.view(seen, one, tokens, self.heads, self.rank), rotated)
        key = _joined(net, net.view(latent, one, tokens, 1, self.rank), key)
        cache = net.state((1, net.context, 1, self.rank + self.rotated))
        attended = net.graph.call(
            "pteron.attention.default",
            *(query, key, None, cache, None, net.start, self.scale, None, None, None, None, self.rank),
            out=(one, tokens, self.heads, self.rank),
        )
        flat = net.view(attended, tokens, self.heads, self.rank)
        result = net.experts_linear(flat, None, f"{place}.v_b", self.heads)
        return net.linear(net.view(result, one, tokens, self.heads * self.value), f"{place}.wo")

    def _queries(self, net: Network, x: Tensor, place: str) -> Tensor:
        if net.has(f"{place}.q_a.weight"):
            x = self.norm(net, net.linear(x, f"{place}.q_a"), f"{place}.q_a_norm")
        return net.linear(x, f"{place}.wq", self.heads, self.plain + self.rotated)


def _split(net: Network, x: Tensor, *widths: int) -> tuple[Tensor, ...]:
    """Parts of the last dimension."""
    out = [(x.dtype, (*x.sizes[:-1], width)) for width in widths]
    return net.graph.call_many("aten.split_with_sizes_copy.default", x, widths, len(x.sizes) - 1, out=out)


def _joined(net: Network, a: Tensor, b: Tensor) -> Tensor:
    sizes = (*a.sizes[:-1], a.shape[-1] + b.shape[-1])
    return net.graph.call("aten.cat.default", [a, b], len(sizes) - 1, out=sizes, dtype=a.dtype)


def attention(config: Config) -> LatentAttention:
    plain, rotated = int(config["qk_nope_head_dim"]), int(config["qk_rope_head_dim"])
    return LatentAttention(
        heads=int(config["num_attention_heads"]),
        rank=int(config["kv_lora_rank"]),
        plain=plain,
        rotated=rotated,
        value=int(config["v_head_dim"]),
        rotary=rotary_of(config, rotated),
        scale=(plain + rotated) ** -0.5 * _magnitude(config) ** 2,
        norm=RmsNorm(1e-6),  # not in the configuration
    )


def _magnitude(config: Config) -> float:
    """YaRN's correction of scores."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    factor, of_all = float(rope.get("factor") or 1), float(rope.get("mscale_all_dim") or 0)
    return 0.1 * of_all * math.log(factor) + 1 if factor > 1 and of_all else 1.0


def deepseek_v2(config: Config) -> Decoder:
    if config.get("scoring_func") == "sigmoid":  # a GGUF file of V3, which has the architecture of V2
        return deepseek_v3(config)
    require_settings(config, scoring_func="softmax")
    if config.get("norm_topk_prob"):
        raise UnsupportedError("DeepSeek V2 with normalised weights of experts (norm_topk_prob)")
    method = config.get("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise UnsupportedError(f"experts chosen by {method!r}; known are greedy, group_limited_greedy")
    groups = {} if method == "greedy" else groups_of(config, 1)
    return stack(config, attention(config), experts_after_dense(config, normalised=False, **groups))


def deepseek_v3(config: Config) -> Decoder:
    return stack(config, attention(config), sigmoid_experts(config))


def _from_gguf(config: Config) -> Config:
    """Older files, with keys and values in one matrix, have the sizes of heads under the usual keys."""
    rotated = int(config["rope.dimension_count"])
    whole = int(config.get("attention.key_length_mla") or config["head_dim"])
    rope = config["rope_parameters"] | {"partial_rotary_factor": 1.0}
    if rope.get("mscale_all_dim"):  # llama.cpp's converter multiplies it by 0.1, and takes mscale as equal
        of_all = rope["mscale_all_dim"] / 0.1
        rope |= {"mscale": of_all, "mscale_all_dim": of_all}
    grouped = int(config.get("n_group") or 1) > 1
    return config.changed(
        norm_topk_prob=config.get("norm_topk_prob", False),
        qk_nope_head_dim=whole - rotated,
        qk_rope_head_dim=rotated,
        v_head_dim=config.get("attention.value_length_mla") or config["attention.value_length"],
        rope_parameters=rope,
        topk_method="group_limited_greedy" if grouped else "greedy",
    )


def _in_halves(config: Config, rows: Array) -> Array:
    """The rotated rows at the end of [..., rows, columns]: pairs of neighbours become halves."""
    if not config.get("rope_interleave", True):
        return rows
    start = rows.shape[1] - int(config["qk_rope_head_dim"])
    pairs = [rows[:, start::2], rows[:, start + 1 :: 2]]
    return np.concatenate([rows[:, :start], *pairs], 1)


def _query_rows(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    heads = int(config["num_attention_heads"])

    def reorder(rows: Array) -> Array:
        return _in_halves(config, rows.reshape(heads, -1, *rows.shape[1:])).reshape(rows.shape)

    return {"layers.{}.attention.wq": tensor.rearranged(reorder)}


def _latent_rows(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    return {"layers.{}.attention.kv_a": tensor.rearranged(lambda rows: _in_halves(config, rows[None])[0])}


def _heads_rows(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    """The matrices of keys, transposed, and of values, of each head."""
    heads, plain = int(config["num_attention_heads"]), int(config["qk_nope_head_dim"])

    def keys(rows: Array) -> Array:
        of_heads = rows.reshape(heads, -1, rows.shape[1])[:, :plain]
        return of_heads.swapaxes(1, 2).reshape(-1, plain)

    def values(rows: Array) -> Array:
        return rows.reshape(heads, -1, rows.shape[1])[:, plain:].reshape(-1, rows.shape[1])

    place = "layers.{}.attention"
    return {f"{place}.k_b": tensor.rearranged(keys), f"{place}.v_b": tensor.rearranged(values)}


NAMES = {
    **HUGGING_FACE,
    **EXPERTS,
    "model.layers.{}.self_attn.q_proj": _query_rows,
    "model.layers.{}.self_attn.q_a_proj": "layers.{}.attention.q_a",
    "model.layers.{}.self_attn.q_a_layernorm": "layers.{}.attention.q_a_norm",
    "model.layers.{}.self_attn.q_b_proj": _query_rows,
    "model.layers.{}.self_attn.kv_a_proj_with_mqa": _latent_rows,
    "model.layers.{}.self_attn.kv_a_layernorm": "layers.{}.attention.kv_a_norm",
    "model.layers.{}.self_attn.kv_b_proj": _heads_rows,
}
GGUF_NAMES = {
    **GGUF,
    **GGUF_EXPERTS,
    "blk.{}.attn_q": _query_rows,
    "blk.{}.attn_q_a": "layers.{}.attention.q_a",
    "blk.{}.attn_q_a_norm": "layers.{}.attention.q_a_norm",
    "blk.{}.attn_q_b": _query_rows,
    "blk.{}.attn_kv_a_mqa": _latent_rows,
    "blk.{}.attn_kv_a_norm": "layers.{}.attention.kv_a_norm",
    "blk.{}.attn_kv_b": _heads_rows,  # in older files
    "blk.{}.attn_k_b": flattened("layers.{}.attention.k_b"),
    "blk.{}.attn_v_b": flattened("layers.{}.attention.v_b"),
}
FAMILIES = {
    "deepseek_v2": Family(deepseek_v2, NAMES, GGUF_NAMES, architecture="deepseek2", from_gguf=_from_gguf),
    "deepseek_v3": Family(deepseek_v3, NAMES),
}
