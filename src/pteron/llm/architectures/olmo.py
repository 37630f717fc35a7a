"""OLMo: norms without weights. OLMo 2: norms of the results of attention and MLP, not of their inputs; norms
of whole queries and keys. OLMo 3: the same with windows; only layers without one scale rotary embeddings."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.llama import GGUF_INTERLEAVED
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import Block, Decoder, GatedMlp, LayerNorm, RmsNorm
from pteron.llm.architectures.rotary import rotary_of_kind

_EPS = 1e-5  # in the source of OLMo, not in configurations


def olmo(config: Config) -> Decoder:
    clip = config.get("clip_qkv")
    attention = replace(llama.attention(config), clip=None if clip is None else float(clip))
    norm = LayerNorm(_EPS, has_weight=False)
    block = Block(attention, GatedMlp(config.get("hidden_act", "silu")), norm)
    return Decoder((block,) * int(config["num_hidden_layers"]), norm)


def olmo2(config: Config) -> Decoder:
    norm, mlp = RmsNorm(float(config["rms_norm_eps"])), GatedMlp(config.get("hidden_act", "silu"))
    plain = llama.attention(config | {"rope_parameters": None, "rope_scaling": None})
    full, sliding = (
        replace(plain, projection_norm=norm, rotary=rotary_of_kind(config, plain.head_dim, kind))
        for kind in ("full_attention", "sliding_attention")
    )
    has_window = bool(config.get("sliding_window"))
    attend = llama.by_layer(config, sliding, full, every=4) if has_window else lambda _: full
    count = int(config["num_hidden_layers"])
    blocks = tuple(Block(attend(index), mlp, norm=None, result_norm=norm) for index in range(count))
    return Decoder(blocks, norm)


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.post_attention_layernorm": "layers.{}.attention_result_norm",
    "model.layers.{}.post_feedforward_layernorm": "layers.{}.ffn_result_norm",
}
GGUF_NAMES = {
    **GGUF,
    "blk.{}.post_attention_norm": "layers.{}.attention_result_norm",
    "blk.{}.post_ffw_norm": "layers.{}.ffn_result_norm",
}
FAMILIES = {
    "olmo": Family(olmo, HUGGING_FACE, GGUF_INTERLEAVED),
    "olmo2": Family(olmo2, NAMES, GGUF_NAMES),
    "olmo3": Family(olmo2, NAMES),  # GGUF files have the architecture `olmo2`
}
