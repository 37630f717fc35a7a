"""Granite 3: Llama, with factors of embeddings, scores, residuals and logits."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.llama import GGUF_INTERLEAVED
from pteron.llm.architectures.names import HUGGING_FACE, Config
from pteron.llm.architectures.parts import Block, Decoder, GatedMlp, RmsNorm

# Keys in GGUF files.
_GGUF = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "logits_scaling": "logit_scale",
    "residual_multiplier": "residual_scale",
}


def decoder(config: Config) -> Decoder:
    factors = {
        key: float(config[key] if key in config else config.get(other, 1)) for key, other in _GGUF.items()
    }
    norm = RmsNorm(float(config["rms_norm_eps"]))
    attention = replace(llama.attention(config), scale=factors["attention_multiplier"])
    mlp = GatedMlp(config.get("hidden_act", "silu"))
    block = Block(attention, mlp, norm, residual_scale=factors["residual_multiplier"])
    layers = (block,) * int(config["num_hidden_layers"])
    scale, logit_scale = factors["embedding_multiplier"], 1 / factors["logits_scaling"]
    return Decoder(layers, norm, embedding_scale=scale, logit_scale=logit_scale)


FAMILIES = {"granite": Family(decoder, HUGGING_FACE, GGUF_INTERLEAVED)}
