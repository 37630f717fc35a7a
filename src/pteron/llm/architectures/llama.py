"""Llama, also of SmolLM2 and many others: pre-norm layers with grouped attention and SwiGLU. Seed-OSS and
ERNIE 4.5 are the same but for names or rotary pairs, Arcee has a plain MLP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pteron.errors import UnsupportedError
from pteron.llm.architectures.experts import GGUF_EXPERTS, count_of, experts_of
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config, Names, halves, head_sizes
from pteron.llm.architectures.parts import Attention, Block, Decoder, GatedMlp, Mlp, Part, RmsNorm
from pteron.llm.architectures.rotary import rotary_of

# Files of these architectures store rotary pairs as neighbours.
GGUF_INTERLEAVED: Names = {
    **GGUF,
    "blk.{}.attn_q": halves("layers.{}.attention.wq", "num_attention_heads"),
    "blk.{}.attn_k": halves("layers.{}.attention.wk", "num_key_value_heads"),
}


def attention(config: Config, *, interleaved: bool = False) -> Attention:
    heads, kv_heads, head_dim = head_sizes(config)
    return Attention(heads, kv_heads, head_dim, rotary_of(config, head_dim, interleaved=interleaved))


def decoder(
    config: Config,
    attend: Callable[[int], Part] | None = None,
    mlp: Part | None = None,
    feed: Callable[[int], Part | None] | None = None,
) -> Decoder:
    """`attend` gives the attention of each layer and `feed` its MLP, if they are not the plain ones."""
    norm, plain = RmsNorm(float(config["rms_norm_eps"])), attention(config)
    dense = mlp or GatedMlp(config.get("hidden_act", "silu"))

    def block(index: int) -> Block:
        return Block(attend(index) if attend else plain, (feed(index) if feed else None) or dense, norm)

    return Decoder(tuple(map(block, range(int(config["num_hidden_layers"])))), norm)


def llama(config: Config) -> Decoder:
    """GGUF files of Mixtral have this architecture too."""
    if not count_of(config):
        return decoder(config)
    experts = experts_of(config)
    return decoder(config, feed=lambda _: experts)


def ernie4_5(config: Config) -> Decoder:
    interleaved = attention(config, interleaved=True)
    return decoder(config, lambda _: interleaved)


def arcee(config: Config) -> Decoder:
    return decoder(config, mlp=Mlp(config.get("hidden_act", "relu2")))


def by_layer(config: Config, sliding: Attention, full: Attention, every: int) -> Callable[[int], Attention]:
    """Attention with a window, or without one in layers of kind `full_attention` or each `every`-th."""
    sliding = replace(sliding, window=config.get("sliding_window") or None)
    kinds = config.get("layer_types")
    every = config.get("sliding_window_pattern") or every
    if not kinds and not isinstance(every, int):
        raise UnsupportedError(f"sliding_window_pattern {every!r} without layer_types")

    def attend(layer: int) -> Attention:
        is_full = kinds[layer] == "full_attention" if kinds else (layer + 1) % every == 0
        return full if is_full else sliding

    return attend


def with_windows(
    config: Config, attend: Callable[[int], Attention], is_windowed: Callable[[int], bool]
) -> Callable[[int], Attention]:
    """The attention of each layer; if `use_sliding_window` is on, with a window in layers of kind
    `sliding_attention`, or in those of `is_windowed` if the configuration states no kinds."""
    window, kinds = config.get("sliding_window"), config.get("layer_types")
    if not config.get("use_sliding_window") or not window:
        return attend

    def windowed(layer: int) -> Attention:
        has_window = kinds[layer] == "sliding_attention" if kinds else is_windowed(layer)
        return replace(attend(layer), window=int(window)) if has_window else attend(layer)

    return windowed


PLAIN_MLP: Names = {
    **HUGGING_FACE,
    "model.layers.{}.mlp.up_proj": "layers.{}.feed_forward.w1",
    "model.layers.{}.mlp.down_proj": "layers.{}.feed_forward.w2",
}
_SEED_GGUF: Names = {**GGUF, "blk.{}.post_attention_norm": "layers.{}.ffn_norm"}
FAMILIES = {
    "llama": Family(llama, HUGGING_FACE, {**GGUF_INTERLEAVED, **GGUF_EXPERTS}),
    "arcee": Family(arcee, PLAIN_MLP, {**GGUF_INTERLEAVED, "blk.{}.ffn_up": "layers.{}.feed_forward.w1"}),
    "ernie4_5": Family(ernie4_5, HUGGING_FACE, GGUF),
    "seed_oss": Family(decoder, HUGGING_FACE, _SEED_GGUF),
}
