"""What llama.cpp's converter writes for mixtures of experts and latent attention: metadata and tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from pteron.llm.architectures.experts import chosen_of, count_of

Array = npt.NDArray[Any]  # float32, or bytes of blocks
Config = dict[str, Any]
SIGMOID = ("deepseek_v3", "glm4_moe")


def write_experts(writer: Any, config: Config) -> None:
    """The metadata of experts; `merged_kv_b` in a configuration is for the layout of older files."""
    import gguf

    if "kv_lora_rank" in config:
        _write_latent(writer, config)
    if not count_of(config):
        return
    writer.add_expert_count(count_of(config))
    writer.add_expert_used_count(chosen_of(config))
    gating, kind = gguf.ExpertGatingFuncType, config["model_type"]
    if kind in SIGMOID:
        writer.add_expert_gating_func(gating.SIGMOID)
        writer.add_expert_weights_norm(config["norm_topk_prob"])
    elif kind == "deepseek_v2" and "merged_kv_b" not in config:
        writer.add_expert_gating_func(gating.SOFTMAX)
    if "routed_scaling_factor" in config:
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if config.get("n_group"):
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    for key in ("num_dense_layers", "first_k_dense_replace", "moe_layer_start_index"):
        if key in config:
            writer.add_leading_dense_block_count(config[key])
    for key in ("n_shared_experts", "moe_num_shared_experts"):
        if key in config:
            writer.add_expert_shared_count(config[key])
    for key in ("interleave_moe_layer_step", "moe_layer_interval"):
        if key in config:
            writer.add_interleave_moe_layer_step(config[key])


def _write_latent(writer: Any, config: Config) -> None:
    key, value = config["qk_nope_head_dim"] + config["qk_rope_head_dim"], config["v_head_dim"]
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    if config.get("merged_kv_b"):
        writer.add_key_length(key)
        writer.add_value_length(value)
    else:
        writer.add_key_length(config["kv_lora_rank"] + config["qk_rope_head_dim"])
        writer.add_value_length(config["kv_lora_rank"])
        writer.add_key_length_mla(key)
        writer.add_value_length_mla(value)
    rope = config["rope_parameters"]
    if "mscale_all_dim" in rope:
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def split_keys_and_values(key: str, array: Array, config: Config) -> Iterator[tuple[str, Array]]:
    """The matrices of each head: those of keys are transposed."""
    heads, plain = config["num_attention_heads"], config["qk_nope_head_dim"]
    of_heads = array.reshape(heads, -1, array.shape[1])
    yield key.replace("kv_b_proj", "k_b_proj"), of_heads[:, :plain].swapaxes(1, 2)
    yield key.replace("kv_b_proj", "v_b_proj"), of_heads[:, plain:]
