"""Gemma: norms whose weights are stored without 1, GeGLU, scaled embeddings. Gemma 2 adds norms of results,
soft caps and windows in every second layer; Gemma 3 norms of heads, and windows in five of six layers, which
have a rotary embedding of their own. Of Gemma 3's multimodal checkpoints the text model is read."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family, require_settings
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config, Names, of_text_model, plus_one
from pteron.llm.architectures.parts import Attention, Block, Decoder, GatedMlp, RmsNorm
from pteron.llm.architectures.rotary import rotary_of_kind

# The models that scale scores by hidden_size / heads instead of the heads' width; GGUF files do not say so.
_LARGEST = {"gemma2": 46, "gemma3": 62}  # layers


def gemma(config: Config) -> Decoder:
    norm = RmsNorm(float(config["rms_norm_eps"]))
    block = Block(llama.attention(config), _mlp(config), norm)
    return Decoder((block,) * int(config["num_hidden_layers"]), norm, sqrt(config["hidden_size"]))


def gemma2(config: Config) -> Decoder:
    full = replace(
        llama.attention(config), scale=_scale(config), softcap=config.get("attn_logit_softcapping", 50.0)
    )
    return _with_windows({"final_logit_softcapping": 30.0, **config}, full, full, every=2)


def gemma3(config: Config) -> Decoder:
    require_settings(config, use_bidirectional_attention=False)
    plain = llama.attention(config | {"rope_parameters": None, "rope_scaling": None})
    norm, scale = RmsNorm(float(config["rms_norm_eps"])), _scale(config)
    cap = config.get("attn_logit_softcapping")
    full, sliding = (
        replace(
            plain,
            head_norm=norm,
            scale=scale,
            softcap=cap,
            rotary=rotary_of_kind(config, plain.head_dim, kind),
        )
        for kind in ("full_attention", "sliding_attention")
    )
    return _with_windows(config, sliding, full, every=6)


def _from_gguf(config: Config) -> Config:
    """With the usual rotary embedding of layers with windows, if the file does not state it."""
    return {"rope_local_base_freq": 10000.0, **config}


def _mlp(config: Config) -> GatedMlp:
    # Older files have `hidden_act: gelu` for what is the approximation by tanh.
    return GatedMlp(config.get("hidden_activation") or "gelu_pytorch_tanh")


def _scale(config: Config) -> float:
    heads = int(config["num_attention_heads"])
    is_largest = _LARGEST.get(config["model_type"]) == config["num_hidden_layers"]
    width = config["hidden_size"] / heads if is_largest else config.get("head_dim") or 256
    return 1 / sqrt(config.get("query_pre_attn_scalar") or width)


def _with_windows(config: Config, sliding: Attention, full: Attention, every: int) -> Decoder:
    norm, mlp = RmsNorm(float(config["rms_norm_eps"])), _mlp(config)
    attend = llama.by_layer(config, sliding, full, every)
    count = int(config["num_hidden_layers"])
    blocks = tuple(Block(attend(index), mlp, norm, result_norm=norm) for index in range(count))
    cap = config.get("final_logit_softcapping")
    return Decoder(blocks, norm, sqrt(config["hidden_size"]), logit_softcap=cap)


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
