"""Llama, also of SmolLM2 and many others: pre-norm layers with grouped attention and SwiGLU."""

from __future__ import annotations

from collections.abc import Callable

from pteron.llm.architectures.experts import GGUF_EXPERTS, Experts, Router, chosen_of, count_of, gated
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config, Names, halves
from pteron.llm.architectures.parts import Attention, Block, Decoder, GatedMlp, Part, RmsNorm
from pteron.llm.architectures.rotary import rotary_of

# Files of these architectures store rotary pairs as neighbours.
GGUF_INTERLEAVED: Names = {
    **GGUF,
    "blk.{}.attn_q": halves("layers.{}.attention.wq", "num_attention_heads"),
    "blk.{}.attn_k": halves("layers.{}.attention.wk", "num_key_value_heads"),
}


def attention(config: Config) -> Attention:
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    kv_heads = int(config.get("num_key_value_heads") or heads)
    return Attention(heads, kv_heads, head_dim, rotary_of(config, head_dim))


def decoder(
    config: Config,
    attend: Callable[[int], Part] | None = None,
    feed: Callable[[int], Part | None] | None = None,
) -> Decoder:
    """`attend` gives the attention of each layer, `feed` its MLP, if they are not the plain ones."""
    norm, plain = RmsNorm(float(config["rms_norm_eps"])), attention(config)
    mlp = GatedMlp(config.get("hidden_act", "silu"))

    def block(index: int) -> Block:
        return Block(attend(index) if attend else plain, (feed(index) if feed else None) or mlp, norm)

    return Decoder(tuple(map(block, range(int(config["num_hidden_layers"])))), norm)


def llama(config: Config) -> Decoder:
    """GGUF files of Mixtral have this architecture too."""
    if not count_of(config):
        return decoder(config)
    experts = Experts(Router(count_of(config), chosen_of(config)), gated("silu"))
    return decoder(config, feed=lambda _: experts)


FAMILIES = {"llama": Family(llama, HUGGING_FACE, {**GGUF_INTERLEAVED, **GGUF_EXPERTS})}
