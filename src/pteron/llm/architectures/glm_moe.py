"""GLM-4.5 and 4.6: partial rotary embeddings, experts in groups, a shared MLP."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.deepseek import sigmoid_experts
from pteron.llm.architectures.experts import EXPERTS, GGUF_EXPERTS
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import Decoder, IfPresent, RmsNorm


def decoder(config: Config) -> Decoder:
    norm = RmsNorm(float(config["rms_norm_eps"]))
    head_norm = norm if config.get("use_qk_norm") else IfPresent(norm)
    attention = replace(llama.attention(config), head_norm=head_norm)
    return llama.decoder(config, lambda _: attention, feed=sigmoid_experts(config))


GGUF_NAMES = {**GGUF, **GGUF_EXPERTS, "blk.{}.post_attention_norm": "layers.{}.ffn_norm"}
FAMILIES = {
    "glm4_moe": Family(decoder, {**HUGGING_FACE, **EXPERTS}, GGUF_NAMES, architecture="glm4moe"),
}
