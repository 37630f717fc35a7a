"""Qwen3-Next and the text models of Qwen3.5: layers with the gated delta rule, and each fourth with gated
attention; experts with a shared one, or MLPs. Weights of norms are stored as differences from 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pteron.errors import UnsupportedError
from pteron.format.stored_tensor import Array, StoredTensor
from pteron.llm.architectures import gemma
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.experts import EXPERTS, GGUF_EXPERTS, count_of, flattened, halved
from pteron.llm.architectures.family import Family, stack
from pteron.llm.architectures.names import GGUF, Names, Rule
from pteron.llm.architectures.parts import Decoder
from pteron.llm.architectures.recurrent import GatedDeltaNet, taps
from pteron.llm.architectures.sparse import qwen_experts


def decoder(config: Config) -> Decoder:
    attention = config.attention(head_norm=config.norm, output_gate=True)
    mixer = GatedDeltaNet(*_heads(config), config.norm)
    every = int(config.get("full_attention_interval") or 4)
    is_full = config.is_full(lambda layer: (layer + 1) % every == 0)
    normalised = Config({"norm_topk_prob": True, **config})
    mlps = qwen_experts(normalised, has_shared=True) if count_of(config) else None
    return stack(config, [attention if each else mixer for each in is_full], mlps)


def _heads(config: Config) -> tuple[int, int, int, int]:
    """Heads of keys and of values, and their widths."""
    keys, values = int(config["linear_num_key_heads"]), int(config["linear_num_value_heads"])
    width = config.get("linear_value_head_dim") or config["ssm.inner_size"] // values
    return keys, values, int(config["linear_key_head_dim"]), int(width)


_MIXER = "layers.{}.attention"


def _by_group(places: Sequence[str], rows: Callable[[Config], Sequence[int]]) -> Rule:
    """A matrix with the rows of several for each head of keys: all rows of each; places that are equal get
    one matrix, one below the other."""

    def rule(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
        heads, counts = int(config["linear_num_key_heads"]), rows(config)
        if tensor.rows != heads * sum(counts):
            raise UnsupportedError(f"a matrix of {tensor.rows} rows, expected {heads * sum(counts)}")
        ends = np.cumsum(counts)

        def take(place: str) -> Callable[[Array], Array]:
            def rearrange(array: Array) -> Array:
                parts = np.split(array.reshape(heads, -1, *array.shape[1:]), ends[:-1], 1)
                wanted = [part for part, name in zip(parts, places, strict=True) if name == place]
                return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in wanted])

            return rearrange

        return {f"{_MIXER}.{place}": tensor.rearranged(take(place)) for place in dict.fromkeys(places)}

    return rule


def _qkvz_rows(config: Config) -> tuple[int, ...]:
    keys, values, key_width, width = _heads(config)
    return key_width, key_width, values // keys * width, values // keys * width


def _ba_rows(config: Config) -> tuple[int, ...]:
    keys, values, *_ = _heads(config)
    return values // keys, values // keys


def _query_and_gate(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    """For each head: the rows of its query, then those of its gate."""
    heads = int(config["num_attention_heads"])

    def take(index: int) -> Callable[[Array], Array]:
        return lambda array: array.reshape(heads, 2, -1, *array.shape[1:])[:, index].reshape(
            -1, *array.shape[1:]
        )

    return {f"{_MIXER}.wq": tensor.rearranged(take(0)), f"{_MIXER}.wg": tensor.rearranged(take(1))}


def _decay(_: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    return {f"{_MIXER}.decay": tensor.mapped(lambda array: -np.exp(array))}


_split_qkvz = _by_group(("wqkv", "wqkv", "wqkv", "wg"), _qkvz_rows)
_split_ba = _by_group(("beta", "alpha"), _ba_rows)
_FEED = "layers.{}.feed_forward"
_LINEAR = "model.layers.{}.linear_attn"
NAMES: Names = {
    **gemma.NAMES,
    **EXPERTS,
    "model.layers.{}.mlp.experts.gate_up_proj": halved(
        f"{_FEED}.experts.w1.weight", f"{_FEED}.experts.w3.weight"
    ),
    "model.layers.{}.mlp.experts.down_proj": flattened(f"{_FEED}.experts.w2.weight"),
    "model.layers.{}.self_attn.q_proj": _query_and_gate,
    f"{_LINEAR}.in_proj_qkvz": _split_qkvz,
    f"{_LINEAR}.in_proj_ba": _split_ba,
    f"{_LINEAR}.in_proj_qkv": f"{_MIXER}.wqkv",
    f"{_LINEAR}.in_proj_z": f"{_MIXER}.wg",
    f"{_LINEAR}.in_proj_b": f"{_MIXER}.beta",
    f"{_LINEAR}.in_proj_a": f"{_MIXER}.alpha",
    f"{_LINEAR}.conv1d": taps(f"{_MIXER}.conv"),
    f"{_LINEAR}.dt_bias": f"{_MIXER}.alpha.bias",
    f"{_LINEAR}.A_log": _decay,
    f"{_LINEAR}.norm": f"{_MIXER}.norm",
    f"{_LINEAR}.out_proj": f"{_MIXER}.wo",
    "mtp.*": None,  # predicts further tokens
}
NAMES_MULTIMODAL: Names = {
    **NAMES,
    **{name.replace("model.", "model.language_model.", 1): rule for name, rule in NAMES.items()},
    "model.visual.*": None,
}


def _grouped(
    place: str, *, first: Callable[[Config], int] = lambda _: 0, width: int | None = None, axis: int = 0
) -> Rule:
    """Heads of values that are in the order of ggml's broadcasts, the first of each group of heads before the
    second: groups one after another. They start at row `first` and are `width` rows each, or the width of
    values."""

    def rule(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
        keys, values, _, value_width = _heads(config)
        start, rows = first(config), width or value_width

        def reorder(array: Array) -> Array:
            moved = np.moveaxis(array, axis, 0)
            tail = moved[start:].reshape(values // keys, keys, rows, *moved.shape[1:]).swapaxes(0, 1)
            joined = np.concatenate([moved[:start], tail.reshape(-1, *moved.shape[1:])])
            return np.moveaxis(joined, 0, axis)

        return {place: tensor.rearranged(reorder)}

    return rule


def _key_rows(config: Config) -> int:
    """Of queries and keys, which come before values."""
    keys, _, width, _ = _heads(config)
    return 2 * keys * width


GGUF_NAMES: Names = {
    **GGUF,
    **GGUF_EXPERTS,
    "blk.{}.attn_q": _query_and_gate,
    "blk.{}.post_attention_norm": "layers.{}.ffn_norm",
    "blk.{}.ssm_in": _split_qkvz,  # in older files
    "blk.{}.ssm_ba": _split_ba,
    "blk.{}.attn_qkv": f"{_MIXER}.wqkv",
    "blk.{}.attn_gate": f"{_MIXER}.wg",
    "blk.{}.ssm_conv1d": taps(f"{_MIXER}.conv"),
    "blk.{}.ssm_dt": f"{_MIXER}.alpha",
    "blk.{}.ssm_a": f"{_MIXER}.decay",
    "blk.{}.ssm_norm": f"{_MIXER}.norm",
    "blk.{}.ssm_out": f"{_MIXER}.wo",
}
GGUF_NAMES_3_5: Names = {
    **GGUF_NAMES,
    "blk.{}.attn_qkv": _grouped(f"{_MIXER}.wqkv", first=_key_rows),
    "blk.{}.attn_gate": _grouped(f"{_MIXER}.wg"),
    "blk.{}.ssm_beta": _grouped(f"{_MIXER}.beta", width=1),
    "blk.{}.ssm_alpha": _grouped(f"{_MIXER}.alpha", width=1),
    "blk.{}.ssm_conv1d": _grouped(f"{_MIXER}.conv", first=_key_rows),
    "blk.{}.ssm_dt": _grouped(f"{_MIXER}.alpha", width=1),
    "blk.{}.ssm_a": _grouped(f"{_MIXER}.decay", width=1),
    "blk.{}.ssm_out": _grouped(f"{_MIXER}.wo", axis=1),
}
_KEYS = {
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
FAMILIES = {
    "qwen3_next": Family(decoder, NAMES, GGUF_NAMES, _KEYS, architecture="qwen3next"),
    "qwen3_5_text": Family(decoder, NAMES_MULTIMODAL, GGUF_NAMES_3_5, _KEYS, architecture="qwen35"),
    "qwen3_5_moe_text": Family(decoder, NAMES_MULTIMODAL, GGUF_NAMES_3_5, _KEYS, architecture="qwen35moe"),
    "qwen3_5": Family(decoder, NAMES_MULTIMODAL),
    "qwen3_5_moe": Family(decoder, NAMES_MULTIMODAL),
}
