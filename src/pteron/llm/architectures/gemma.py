"""Gemma 1, 2 and 3: scaled embeddings, GeGLU, norms stored as differences from 1.

Gemma 2 and 3 norm results too and alternate windowed and full attention; Gemma 2 has soft caps, Gemma 3 norms
of each head and other rotary frequencies in windowed layers.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pteron.errors import UnsupportedError
from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config, Names, plus_one
from pteron.llm.architectures.parts import Attention, Block, Decoder, GatedMlp, RmsNorm

# How many layers there are from one with full attention to the next.
_PERIODS = {"gemma2": 2, "gemma3_text": 6}


def gemma(config: Config) -> Decoder:
    block = Block(_attention(config), _mlp(config), _norm(config))
    return _decoder(config, [block] * int(config["num_hidden_layers"]))


def gemma2(config: Config) -> Decoder:
    full = replace(
        _attention(config), scale=_scale(config), softcap=config.get("attn_logit_softcapping", 50.0)
    )
    decoder = _decoder(config, _alternating(config, full, full))
    return replace(decoder, logit_softcap=config.get("final_logit_softcapping", 30.0))


def gemma3(config: Config) -> Decoder:
    rope = config.get("rope_parameters") or {}
    far = {**(config.get("rope_scaling") or {}), "rope_theta": config.get("rope_theta", 1e6)}
    near = {"rope_theta": config.get("rope_local_base_freq", 1e4)}
    windowed, full = (
        replace(
            _attention(config | {"rope_parameters": parameters}),
            scale=_scale(config),
            head_norm=_norm(config),
        )
        for parameters in (rope.get("sliding_attention", near), rope.get("full_attention", far))
    )
    return _decoder(config, _alternating(config, windowed, full))


def _attention(config: Config) -> Attention:
    if config.get("use_bidirectional_attention"):
        raise UnsupportedError("attention to later tokens")
    return llama.attention({"head_dim": 256, **config})


def _norm(config: Config) -> RmsNorm:
    return RmsNorm(float(config["rms_norm_eps"]))


def _mlp(config: Config) -> GatedMlp:
    # The first models name `hidden_act` gelu, but mean its approximation.
    return GatedMlp(config.get("hidden_activation") or "gelu_pytorch_tanh")


def _scale(config: Config) -> float:
    return float(config.get("query_pre_attn_scalar", 256)) ** -0.5


def _alternating(config: Config, windowed: Attention, full: Attention) -> list[Block]:
    """Layers with a window, and now and then one without."""
    windowed = replace(windowed, window=int(config.get("sliding_window") or 4096))
    period = int(config.get("sliding_window_pattern") or _PERIODS[config["model_type"]])
    norm, kinds = _norm(config), config.get("layer_types")

    def block(layer: int) -> Block:
        is_full = kinds[layer] == "full_attention" if kinds else (layer + 1) % period == 0
        return Block(full if is_full else windowed, _mlp(config), norm, result_norm=norm)

    return [block(layer) for layer in range(int(config["num_hidden_layers"]))]


def _decoder(config: Config, layers: list[Block]) -> Decoder:
    return Decoder(tuple(layers), _norm(config), embedding_scale=math.sqrt(config["hidden_size"]))


def _norms(names: dict[str, str]) -> Names:
    return {name: plus_one(place) for name, place in names.items()}


_LAYER = "model.layers.{}"
_FIRST = _norms({"model.norm": "norm", f"{_LAYER}.input_layernorm": "layers.{}.attention_norm"})
NAMES: Names = {
    **HUGGING_FACE,
    **_FIRST,
    **_norms({f"{_LAYER}.post_attention_layernorm": "layers.{}.ffn_norm"}),
}
NAMES_2: Names = {
    **HUGGING_FACE,
    **_FIRST,
    **_norms(
        {
            f"{_LAYER}.self_attn.q_norm": "layers.{}.attention.q_norm_fn",
            f"{_LAYER}.self_attn.k_norm": "layers.{}.attention.k_norm_fn",
            f"{_LAYER}.post_attention_layernorm": "layers.{}.attention_result_norm",
            f"{_LAYER}.pre_feedforward_layernorm": "layers.{}.ffn_norm",
            f"{_LAYER}.post_feedforward_layernorm": "layers.{}.ffn_result_norm",
        }
    ),
}
# GGUF files store the norms' weights as they are used.
GGUF_NAMES: Names = {
    **GGUF,
    "blk.{}.post_attention_norm": "layers.{}.attention_result_norm",
    "blk.{}.post_ffw_norm": "layers.{}.ffn_result_norm",
}
FAMILIES = {
    "gemma": Family(gemma, NAMES, GGUF_NAMES),
    "gemma2": Family(gemma2, NAMES_2),
    "gemma3_text": Family(gemma3, NAMES_2),
}
