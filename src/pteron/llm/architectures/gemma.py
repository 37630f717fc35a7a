"""Gemma: norms whose weights are stored without 1, GeGLU, scaled embeddings. Gemma 2 adds norms of results,
soft caps and windows in every second layer; Gemma 3 norms of heads, and windows in five of six layers, which
have a rotary embedding of their own. Of Gemma 3's multimodal checkpoints the text model is read."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, Layers, require_settings, stack
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Names, of_text_model, plus_one
from pteron.llm.architectures.parts import Decoder, GatedMlp, Part
from pteron.llm.architectures.rotary import rotary_of_kind

# The models that scale scores by hidden_size / heads instead of the heads' width; GGUF files do not say so.
_LARGEST = {"gemma2": 46, "gemma3": 62}  # layers


def gemma(config: Config) -> Decoder:
    return _decoder(config, config.attention())


def gemma2(config: Config) -> Decoder:
    full = config.attention(scale=_scale(config), softcap=config.get("attn_logit_softcapping", 50.0))
    attentions = config.alternating(replace(full, window=config.window), full, every=2)
    cap = config.get("final_logit_softcapping", 30.0)
    return replace(_decoder(config, attentions, result_norm=config.norm), logit_softcap=cap)


def gemma3(config: Config) -> Decoder:
    require_settings(config, use_bidirectional_attention=False)
    full, sliding = (
        config.attention(
            head_norm=config.norm,
            scale=_scale(config),
            softcap=config.get("attn_logit_softcapping"),
            rotary=rotary_of_kind(config, config.head_sizes[2], kind),
            window=window,
        )
        for kind, window in (("full_attention", None), ("sliding_attention", config.window))
    )
    decoder = _decoder(config, config.alternating(sliding, full, every=6), result_norm=config.norm)
    return replace(decoder, logit_softcap=config.get("final_logit_softcapping"))


def _from_gguf(config: Config) -> Config:
    """With the usual rotary embedding of layers with windows, if the file does not state it."""
    return Config({"rope_local_base_freq": 10000.0, **config})


def _decoder(config: Config, attention: Layers, **of_block: Part) -> Decoder:
    # Older files have `hidden_act: gelu` for what is the approximation by tanh.
    mlp = GatedMlp(config.get("hidden_activation") or "gelu_pytorch_tanh")
    return replace(stack(config, attention, mlp, **of_block), embedding_scale=sqrt(config["hidden_size"]))


def _scale(config: Config) -> float:
    heads = int(config["num_attention_heads"])
    is_largest = _LARGEST.get(config["model_type"]) == config["num_hidden_layers"]
    width = config["hidden_size"] / heads if is_largest else config.get("head_dim") or 256
    return 1 / sqrt(config.get("query_pre_attn_scalar") or width)


NORMS = {
    "model.norm": "norm",
    "model.layers.{}.input_layernorm": "layers.{}.attention_norm",
    "model.layers.{}.self_attn.q_norm": "layers.{}.attention.q_norm_fn",
    "model.layers.{}.self_attn.k_norm": "layers.{}.attention.k_norm_fn",
}
NAMES: Names = {
    **HUGGING_FACE,
    **{name: plus_one(place) for name, place in NORMS.items()},
    "model.layers.{}.post_attention_layernorm": plus_one("layers.{}.ffn_norm"),
}
NAMES_2: Names = {
    **NAMES,
    "model.layers.{}.post_attention_layernorm": plus_one("layers.{}.attention_result_norm"),
    "model.layers.{}.pre_feedforward_layernorm": plus_one("layers.{}.ffn_norm"),
    "model.layers.{}.post_feedforward_layernorm": plus_one("layers.{}.ffn_result_norm"),
}
NAMES_3 = of_text_model(NAMES_2)
# Norms' weights in GGUF files include the 1.
GGUF_2: Names = {
    **GGUF,
    "blk.{}.post_attention_norm": "layers.{}.attention_result_norm",
    "blk.{}.post_ffw_norm": "layers.{}.ffn_result_norm",
}
FAMILIES = {
    "gemma": Family(gemma, NAMES, GGUF),
    "gemma2": Family(gemma2, NAMES_2, GGUF_2),
    "gemma3_text": Family(gemma3, NAMES_3),
    "gemma3": Family(gemma3, NAMES_3, GGUF_2, from_gguf=_from_gguf),
}
