"""What llama.cpp's converter writes for mixers of Mamba-2, and for the hybrid models that have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.llm.architectures.mamba2 import sizes_of

Array = npt.NDArray[np.float32]
Config = dict[str, Any]


def with_kinds(config: Config) -> Config:
    """A configuration with the kinds and the number of its layers."""
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if attends := config.get("attn_layer_indices"):
        layers = range(config["num_hidden_layers"])
        kinds = ["full_attention" if layer in attends else "linear_attention" for layer in layers]
    return {**config, "layer_types": kinds, "num_hidden_layers": len(kinds)} if kinds else dict(config)


def _has_mixers(config: Config) -> bool:
    return bool({"mamba_n_heads", "mamba_num_heads", "state_size"} & config.keys())


def write_sizes(writer: Any, config: Config) -> None:
    """Metadata of mixers, if a model has them."""
    if not _has_mixers(config):
        return
    heads, width, columns, groups = sizes_of(config)
    writer.add_ssm_conv_kernel(config.get("conv_kernel") or config["mamba_d_conv"])
    writer.add_ssm_inner_size(heads * width)
    writer.add_ssm_state_size(columns)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_group_count(groups)
    if "rms_norm_eps" not in config:
        writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    if config["model_type"] in ("bamba", "granitemoehybrid"):
        writer.add_rope_scaling_finetuned(config["model_type"] == "bamba")
    if config["model_type"] == "nemotron_h":
        widths = [config["intermediate_size"] * (kind == "mlp") for kind in config["layer_types"]]
        writer.add_feed_forward_length(widths)


def converted(key: str, array: Array, config: Config) -> Iterator[tuple[str, Array]]:
    """A tensor by Hugging Face's name, changed; its layer's shared MLP has its own names in GGUF files."""
    if not _has_mixers(config):
        yield key, array
        return
    array = array * _factor(key, config) if config["model_type"] == "falcon_h1" else array
    layer = key.split(".")[2] if ".layers." in key else ""
    is_mixture, kind = bool(config.get("num_local_experts")), key.rsplit(".", 2)[-2]
    if key.endswith("A_log"):
        array = -np.exp(array)[:, None]
    elif key.endswith((".mixer.D", ".mamba.D")):
        array = array[:, None]
    elif key.endswith(("mixer.norm.weight", "mamba.norm.weight")):
        array = array.reshape(sizes_of(config)[-1], -1)
    elif key.endswith("conv1d.weight"):
        array = array[:, 0]
    elif key.endswith("dt_bias"):
        key = key.replace("dt_bias", "dt_proj.bias")
    elif "shared_mlp" in key or kind == "input_linear":
        suffix = ("_shexp" if is_mixture else "") if "shared_mlp" in key else "_exps"
        if kind == "output_linear":
            yield f"blk.{layer}.ffn_down{suffix}.weight", array
            return
        half = array.shape[-2] // 2
        yield f"blk.{layer}.ffn_gate{suffix}.weight", array[..., :half, :]
        yield f"blk.{layer}.ffn_up{suffix}.weight", array[..., half:, :]
        return
    yield key, array


def _factor(key: str, config: Config) -> Any:
    """Falcon-H1's multipliers."""
    heads, width, columns, groups = sizes_of(config)
    attention, rows = (
        config["attention_in_multiplier"],
        [heads * width] * 2 + [groups * columns] * 2 + [heads],
    )
    if "in_proj" in key:
        return (config["ssm_in_multiplier"] * np.repeat(config["ssm_multipliers"], rows))[:, None]
    factors = {
        "q_proj": attention,
        "k_proj": attention * config["key_multiplier"],
        "v_proj": attention,
        "o_proj": config["attention_out_multiplier"],
        "out_proj": config["ssm_out_multiplier"],
        "gate_proj": config["mlp_multipliers"][0],
        "down_proj": config["mlp_multipliers"][1],
        "lm_head": config["lm_head_multiplier"],
        "embed_tokens": config["embedding_multiplier"],
    }
    return next((factor for name, factor in factors.items() if f".{name}." in f".{key}"), 1.0)
