"""OPT: learned positions after two unused ones, and a plain MLP; the 350M model norms sums,
and its embeddings are narrower than its layers."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, stack
from pteron.llm.architectures.names import Names, with_optional_prefix, without_first
from pteron.llm.architectures.parts import Decoder, LayerNorm, Mlp, Part


def decoder(config: Config) -> Decoder:
    norm = LayerNorm(1e-5, has_weight=bool(config.get("layer_norm_elementwise_affine", True)))
    is_before = bool(config.get("do_layer_norm_before", True))
    norms: dict[str, Part | None] = {} if is_before else {"input_norm": None, "sum_norm": norm}
    decoder = stack(config, config.attention(rotary=None), Mlp(config.activation("relu")), norm, **norms)
    is_normed = is_before and not config.get("_remove_final_layer_norm")
    return replace(
        decoder,
        norm=norm if is_normed else None,
        has_positions=True,
        has_projections=config.get("word_embed_proj_dim", config["hidden_size"]) != config["hidden_size"],
    )


_DECODER: Names = {
    "embed_tokens": "tok_embeddings",
    "embed_positions": without_first("positions", 2),
    "project_in": "project_in",
    "project_out": "project_out",
    "final_layer_norm": "norm",
    "layers.{}.self_attn.q_proj": "layers.{}.attention.wq",
    "layers.{}.self_attn.k_proj": "layers.{}.attention.wk",
    "layers.{}.self_attn.v_proj": "layers.{}.attention.wv",
    "layers.{}.self_attn.out_proj": "layers.{}.attention.wo",
    "layers.{}.self_attn_layer_norm": "layers.{}.attention_norm",
    "layers.{}.fc1": "layers.{}.feed_forward.w1",
    "layers.{}.fc2": "layers.{}.feed_forward.w2",
    "layers.{}.final_layer_norm": "layers.{}.ffn_norm",
}
_NAMES: Names = {f"decoder.{name}": rule for name, rule in _DECODER.items()}
_KEYS = {"hidden_act": "activation_function"}
NAMES: Names = {**with_optional_prefix("model.", _NAMES), "lm_head": "output"}
FAMILIES = {"opt": Family(decoder, NAMES, keys=_KEYS)}
