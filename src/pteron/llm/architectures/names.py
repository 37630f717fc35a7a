"""The names of tensors in checkpoints -> their places in a decoder.

A table maps names, with or without `.weight` or `.bias`, to places without them; `{}` is a number, such as a
layer's, and `*` is anything. Instead of a place it may have a rule, which makes one or several tensors of the
stored one, or None for a tensor that is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from pteron.errors import UnsupportedError
from pteron.format.stored_tensor import Array, StoredTensor
from pteron.llm.architectures.config import Config

# (configuration, tensor) -> tensors by place
Rule: TypeAlias = Callable[[Config, StoredTensor], Mapping[str, StoredTensor]]
Names: TypeAlias = Mapping[str, str | Rule | None]

HUGGING_FACE: Names = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
    "model.layers.{}.input_layernorm": "layers.{}.attention_norm",
    "model.layers.{}.self_attn.q_proj": "layers.{}.attention.wq",
    "model.layers.{}.self_attn.k_proj": "layers.{}.attention.wk",
    "model.layers.{}.self_attn.v_proj": "layers.{}.attention.wv",
    "model.layers.{}.self_attn.o_proj": "layers.{}.attention.wo",
    "model.layers.{}.self_attn.q_norm": "layers.{}.attention.q_norm_fn",
    "model.layers.{}.self_attn.k_norm": "layers.{}.attention.k_norm_fn",
    "model.layers.{}.post_attention_layernorm": "layers.{}.ffn_norm",
    "model.layers.{}.mlp.gate_proj": "layers.{}.feed_forward.w1",
    "model.layers.{}.mlp.down_proj": "layers.{}.feed_forward.w2",
    "model.layers.{}.mlp.up_proj": "layers.{}.feed_forward.w3",
    # Derived from the configuration; some checkpoints store it anyway.
    "model.layers.{}.self_attn.rotary_emb.inv_freq": None,
    "model.rotary_emb.inv_freq": None,
}
GGUF: Names = {
    "token_embd": "tok_embeddings",
    "output_norm": "norm",
    "output": "output",
    "blk.{}.attn_norm": "layers.{}.attention_norm",
    "blk.{}.attn_q": "layers.{}.attention.wq",
    "blk.{}.attn_k": "layers.{}.attention.wk",
    "blk.{}.attn_v": "layers.{}.attention.wv",
    "blk.{}.attn_output": "layers.{}.attention.wo",
    "blk.{}.attn_q_norm": "layers.{}.attention.q_norm_fn",
    "blk.{}.attn_k_norm": "layers.{}.attention.k_norm_fn",
    "blk.{}.ffn_norm": "layers.{}.ffn_norm",
    "blk.{}.ffn_gate": "layers.{}.feed_forward.w1",
    "blk.{}.ffn_down": "layers.{}.feed_forward.w2",
    "blk.{}.ffn_up": "layers.{}.feed_forward.w3",
    # The reader has put these into the configuration, or they follow from it.
    "blk.{}.attn_rot_embd": None,
    "rope_freqs": None,
    "rope_factors_long": None,
    "rope_factors_short": None,
}
PLAIN_MLP: Names = {
    **HUGGING_FACE,
    "model.layers.{}.mlp.up_proj": "layers.{}.feed_forward.w1",
    "model.layers.{}.mlp.down_proj": "layers.{}.feed_forward.w2",
}
GGUF_PLAIN_MLP: Names = {**GGUF, "blk.{}.ffn_up": "layers.{}.feed_forward.w1"}


def place_tensors(
    tensors: Mapping[str, StoredTensor], names: Names, config: Config
) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint by place, such as `layers.0.attention.wq.weight`."""
    patterns = {_pattern(name): rule for name, rule in names.items()}
    placed: dict[str, StoredTensor] = {}
    layers = len(config.layers) if config.get("num_nextn_predict_layers") else None
    for name, tensor in sorted(tensors.items()):
        layer = re.match(r"(?:model\.layers|blk)\.(\d+)\.|model\.mtp_", name)
        if layers is not None and layer and int(layer[1] or layers) >= layers:
            continue  # of a layer that predicts further tokens, for speculative decoding
        for place, found in _places(patterns, name, tensor, config):
            placed[place] = found
    return placed


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d+)").replace(r"\*", ".*"))


def _places(
    patterns: Mapping[re.Pattern[str], str | Rule | None], name: str, tensor: StoredTensor, config: Config
) -> Iterator[tuple[str, StoredTensor]]:
    matched = re.fullmatch(r"(.+)\.(weight|bias)", name)
    stem, kind = (matched[1], f".{matched[2]}") if matched else (name, "")
    found = _find(patterns, name, stem)
    if found is None:
        raise UnsupportedError(
            f"unknown tensor {name}: this model has parts that its family does not have here"
        )
    rule, numbers = found
    if rule is not None:
        made = {rule: tensor} if isinstance(rule, str) else rule(config, tensor)
        for place, part in made.items():
            yield place.format(*numbers) + kind, part


def find_rule(names: Names, module: str) -> tuple[str | Rule | None, tuple[str, ...]] | None:
    """The place or rule of a module's matrix, and the numbers in the module's name; None if the table has no
    such module."""
    return _find({_pattern(name): rule for name, rule in names.items()}, module, f"{module}.weight")


def stored_name(names: Names, place: str) -> str | None:
    """The name that a file has for the tensor of a place, as far as the table says. A rule does not state
    its places; most rules are for names of the common tables."""
    stem, _, kind = place.rpartition(".")
    for table in (names, HUGGING_FACE, GGUF):
        for name, rule in table.items():
            found = _pattern(rule).fullmatch(stem) if isinstance(rule, str) else None
            if found and name in names:
                return f"{name.format(*found.groups())}.{kind}"
    return None


def _find(
    patterns: Mapping[re.Pattern[str], str | Rule | None], *names: str
) -> tuple[str | Rule | None, tuple[str, ...]] | None:
    for pattern, rule in patterns.items():
        for name in names:
            if found := pattern.fullmatch(name):
                return rule, found.groups()
    return None


def halves(place: str, *, of_keys: bool) -> Rule:
    """A projection whose heads store rotary pairs as neighbours (0, h/2, 1, h/2 + 1, ...): its rows are
    reordered into halves."""

    def rule(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
        count = config.head_sizes[of_keys]

        def reorder(rows: Array) -> Array:
            pairs = rows.reshape(count, -1, 2, *rows.shape[1:])
            return pairs.swapaxes(1, 2).reshape(rows.shape)

        return {place: tensor.rearranged(reorder)}

    return rule


queries_in_halves = halves("layers.{}.attention.wq", of_keys=False)
keys_in_halves = halves("layers.{}.attention.wk", of_keys=True)
# Of files that store rotary pairs as neighbours.
INTERLEAVED: Names = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.q_proj": queries_in_halves,
    "model.layers.{}.self_attn.k_proj": keys_in_halves,
}
GGUF_INTERLEAVED: Names = {**GGUF, "blk.{}.attn_q": queries_in_halves, "blk.{}.attn_k": keys_in_halves}


def split(sizes: Callable[[Config], Mapping[str, int]]) -> Rule:
    """A matrix that holds several, one after another: `sizes` gives the rows of each place."""

    def rule(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
        parts, start = {}, 0
        for place, count in sizes(config).items():
            if start + count <= tensor.rows:
                parts[place] = tensor.sliced(start, start + count)
            start += count
        if start != tensor.rows:
            raise UnsupportedError(f"a matrix of {tensor.rows} rows, expected {start}")
        return parts

    return rule


QKV = ("layers.{}.attention.wq", "layers.{}.attention.wk", "layers.{}.attention.wv")


def _qkv_rows(config: Config) -> dict[str, int]:
    heads, kv_heads, head_dim = config.head_sizes
    return dict(zip(QKV, (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim), strict=True))


def _gate_up_rows(config: Config) -> dict[str, int]:
    width = int(config["intermediate_size"])
    return {"layers.{}.feed_forward.w1": width, "layers.{}.feed_forward.w3": width}


split_qkv, split_gate_up = split(_qkv_rows), split(_gate_up_rows)


def split_grouped_qkv(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    """For each head of keys: its heads of queries, itself, its head of values."""
    heads, kv_heads, head_dim = config.head_sizes
    if tensor.rows != (heads + 2 * kv_heads) * head_dim:
        raise UnsupportedError(
            f"a matrix of {tensor.rows} rows, expected {(heads + 2 * kv_heads) * head_dim}"
        )
    count = heads // kv_heads

    def take(part: slice) -> Callable[[Array], Array]:
        def rearrange(array: Array) -> Array:
            groups = array.reshape(kv_heads, count + 2, head_dim, *array.shape[1:])
            return groups[:, part].reshape(-1, *array.shape[1:])

        return rearrange

    parts = (slice(count), slice(count, count + 1), slice(count + 1, count + 2))
    return {place: tensor.rearranged(take(part)) for place, part in zip(QKV, parts, strict=True)}


def transposed(rule: str | Rule) -> Rule:
    """A matrix stored as [columns, rows]; vectors stay as they are."""

    def transpose(config: Config, tensor: StoredTensor) -> Mapping[str, StoredTensor]:
        turned = tensor.rearranged(lambda array: array.T)
        return plain(config, turned)

    def plain(config: Config, tensor: StoredTensor) -> Mapping[str, StoredTensor]:
        return {rule: tensor} if isinstance(rule, str) else rule(config, tensor)

    transpose.of_rows = plain  # type: ignore[attr-defined]  # for adapters, which are not transposed
    return transpose


def plus_one(place: str) -> Rule:
    """A norm's weight stored as its difference from 1."""
    return lambda _, tensor: {place: tensor.mapped(lambda array: array + 1)}


def without_first(place: str, count: int) -> Rule:
    """A table whose first rows are not used."""
    return lambda _, tensor: {place: tensor.sliced(count, tensor.rows)}


def of_text_model(names: Names) -> Names:
    """Names of a text model, and those that it has in newer and older multimodal checkpoints."""
    return {
        **names,
        **{name.replace("model.", "model.language_model.", 1): rule for name, rule in names.items()},
        **{f"language_model.{name}": rule for name, rule in names.items()},
        "*vision_*": None,
        "*multi_modal_projector.*": None,
    }


def with_optional_prefix(prefix: str, names: Names) -> Names:
    """Names with and without a prefix: some checkpoints are of the model without its output matrix."""
    return {**names, **{prefix + name: rule for name, rule in names.items()}}
