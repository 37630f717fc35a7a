"""GLM-4.5 and 4.6: partial rotary embeddings, experts in groups, a shared MLP."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.deepseek import sigmoid_experts
from pteron.llm.architectures.experts import EXPERTS
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import HUGGING_FACE, Config
from pteron.llm.architectures.parts import Decoder, RmsNorm


def decoder(config: Config) -> Decoder:
    attention = llama.attention(config)
    if config.get("use_qk_norm"):
        attention = replace(attention, head_norm=RmsNorm(float(config["rms_norm_eps"])))
    return llama.decoder(config, lambda _: attention, feed=sigmoid_experts(config))


FAMILIES = {"glm4_moe": Family(decoder, {**HUGGING_FACE, **EXPERTS})}
