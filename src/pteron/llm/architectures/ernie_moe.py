"""ERNIE 4.5 with experts: rotary pairs as neighbours, choices corrected by a bias."""

from __future__ import annotations

from pteron.llm.architectures import llama
from pteron.llm.architectures.experts import EXPERTS, GGUF_EXPERTS, experts_of
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.llama import GGUF_INTERLEAVED
from pteron.llm.architectures.names import HUGGING_FACE, Config, halves
from pteron.llm.architectures.parts import Decoder, GatedMlp, Part


def decoder(config: Config) -> Decoder:
    shared = GatedMlp(config.get("hidden_act", "silu")) if config.get("moe_num_shared_experts") else None
    experts = experts_of(config, shared, has_correction=True)
    first, last = int(config["moe_layer_start_index"]), int(config["moe_layer_end_index"])
    interval = int(config.get("moe_layer_interval", 1))
    last = last if last >= 0 else int(config["num_hidden_layers"]) - 1

    def feed(layer: int) -> Part | None:
        return experts if first <= layer <= last and (layer + 1) % interval == 0 else None

    return llama.decoder(config, feed=feed)


def _from_gguf(config: Config) -> Config:
    return config | {
        "moe_layer_start_index": config.get("first_k_dense_replace", 0),
        "moe_layer_end_index": -1,
        "moe_layer_interval": config.get("interleave_moe_layer_step") or 1,
        "moe_num_shared_experts": config.get("n_shared_experts", 0),
    }


NAMES = {
    **HUGGING_FACE,
    **EXPERTS,
    "model.layers.{}.self_attn.q_proj": halves("layers.{}.attention.wq", "num_attention_heads"),
    "model.layers.{}.self_attn.k_proj": halves("layers.{}.attention.wk", "num_key_value_heads"),
}
FAMILIES = {
    "ernie4_5_moe": Family(
        decoder,
        NAMES,
        {**GGUF_INTERLEAVED, **GGUF_EXPERTS},
        architecture="ernie4_5-moe",
        from_gguf=_from_gguf,
    ),
}
