"""HunYuan: Llama, with norms of each head after the rotation."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import Decoder, RmsNorm


def decoder(config: Config) -> Decoder:
    norm = RmsNorm(float(config["rms_norm_eps"]))
    attention = replace(llama.attention(config), rotated_norm=norm)
    return llama.decoder(config, lambda _: attention)


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.query_layernorm": "layers.{}.attention.q_norm_fn",
    "model.layers.{}.self_attn.key_layernorm": "layers.{}.attention.k_norm_fn",
}
FAMILIES = {"hunyuan_v1_dense": Family(decoder, NAMES, GGUF, architecture="hunyuan-dense")}
