"""GLM-4: Llama, with rotary pairs as neighbours in a part of each head, and gate and up in one matrix. The
models of 0414 add norms of results."""

from __future__ import annotations

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config, Names, split_gate_up, split_qkv
from pteron.llm.architectures.parts import Block, Decoder, GatedMlp, RmsNorm


def glm(config: Config) -> Decoder:
    attention = llama.attention(config, interleaved=True)
    return llama.decoder(config, lambda _: attention)


def glm4(config: Config) -> Decoder:
    norm, mlp = RmsNorm(float(config["rms_norm_eps"])), GatedMlp(config.get("hidden_act", "silu"))
    block = Block(llama.attention(config, interleaved=True), mlp, norm, result_norm=norm)
    return Decoder((block,) * int(config["num_hidden_layers"]), norm)


NAMES: Names = {
    **HUGGING_FACE,
    "model.layers.{}.mlp.gate_up_proj": split_gate_up,
    "model.layers.{}.post_self_attn_layernorm": "layers.{}.attention_result_norm",
    "model.layers.{}.post_mlp_layernorm": "layers.{}.ffn_result_norm",
}
GGUF_NAMES: Names = {
    **GGUF,
    "blk.{}.attn_qkv": split_qkv,
    "blk.{}.ffn_up": split_gate_up,
    "blk.{}.post_attention_norm": "layers.{}.attention_result_norm",
    "blk.{}.post_ffw_norm": "layers.{}.ffn_result_norm",
}
FAMILIES = {
    "glm": Family(glm, NAMES, GGUF_NAMES, architecture="chatglm"),
    "glm4": Family(glm4, NAMES, GGUF_NAMES),
}
