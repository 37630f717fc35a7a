"""Tiny checkpoints as GGUF files in llama.cpp's layout: its names of tensors, from the tables of `gguf`, and
what its converter does to weights and configurations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf_blocks import blocks, is_quantized, type_of
from gguf_experts import split_keys_and_values, write_experts
from gguf_mamba import converted, with_kinds, write_sizes

Array = npt.NDArray[Any]  # float32, or bytes of blocks
Config = dict[str, Any]

# Hugging Face's model type -> the architecture in GGUF files, where they differ.
ARCHITECTURES = {
    "bamba": "granitehybrid",
    "cohere": "command-r",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "ernie4_5_moe": "ernie4_5-moe",
    "falcon_h1": "falcon-h1",
    "gemma3_text": "gemma3",
    "glm": "chatglm",
    "glm4_moe": "glm4moe",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    "granitemoehybrid": "granitehybrid",
    "hunyuan_v1_dense": "hunyuan-dense",
    "lfm2_moe": "lfm2moe",
    "llama4_text": "llama4",
    "ministral3": "mistral3",
    "mistral": "llama",
    "mixtral": "llama",
    "olmo3": "olmo2",
    "phi": "phi2",
    "qwen2_moe": "qwen2moe",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
}
# Names of common keys in configurations.
ALIASES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length"),
    "layer_norm_eps": ("layer_norm_epsilon", "norm_epsilon", "norm_eps"),
}
# Rotary pairs become neighbours.
PERMUTED = ("arcee", "granite", "granitehybrid", "granitemoe", "llama", "mistral3", "olmo", "smollm3")
PLUS_ONE = ("gemma", "gemma2", "gemma3", "nemotron", "qwen35", "qwen35moe", "qwen3next")
FLOATS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention_multiplier": "attention.scale",
    "clip_qkv": "attention.clamp_kqv",
    "embedding_multiplier": "embedding_scale",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "logit_scale": "logit_scale",
    "logits_scaling": "logit_scale",
    "residual_multiplier": "residual_scale",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
# Families and settings that llama.cpp does not have, or whose files do not state them; and GGUF files of
# families that are not read here.
NOT_IN_GGUF = {
    *("falcon_rw", "gemma2_scale", "gpt2_options", "gptj", "llama_dynamic", "llama_yarn_mscale", "ministral"),
    *("mistral_window", "opt", "opt_350m", "phi_norms", "qwen2_moe", "qwen2_window"),
    "deepseek_v3",  # its mscale and mscale_all_dim differ
    *("falcon_h1_norm_first", "granitehybrid_rope", "mamba2_options"),
    *("falcon_h1", "falcon_h1_norm"),  # its multipliers are in other tensors: test_mamba_models.py
}


def architecture_of(config: Config) -> str:
    """`general.architecture` in GGUF files."""
    kind: str = config["model_type"]
    return ARCHITECTURES.get(kind, kind)


def write_gguf(golden: Any, file: Path, kind: str = "F32") -> Path:
    """Write a golden's checkpoint, with matrices of a quantisation type (gguf_blocks.py)."""
    import gguf

    config = with_kinds(golden.config)
    for key, others in ALIASES.items():
        found = next((config[other] for other in others if other in config), None)
        if found is not None:
            config.setdefault(key, found)
    name = architecture_of(config)
    writer = gguf.GGUFWriter(str(file), name)
    _write_metadata(writer, name, config)
    architecture = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    stored = golden.tensors()
    if kind != "F32":  # bytes of rows can be stacked, split and permuted as their values can
        shapes = {key: shape for key, shape in golden.shapes.items() if is_quantized(key, shape)}
        in_blocks = {key: shape for key, shape in shapes.items() if type_of(key, kind, shape[-1]) != "F32"}
        stored |= {key: blocks(key, shape, kind) for key, shape in in_blocks.items()}
    for theirs, array in _converted(stored, name, config, writer):
        ends = (".weight", ".bias")
        renamed = names.get_name(theirs, ends) or names.get_name(theirs.removeprefix("model."), ends)
        renamed = theirs if theirs.startswith("rope_") else renamed
        assert renamed is not None, theirs
        if array.dtype == np.uint8:
            wanted = gguf.GGMLQuantizationType[type_of(theirs, kind)]
            writer.add_tensor(renamed, np.ascontiguousarray(array), raw_dtype=wanted)
        else:
            writer.add_tensor(renamed, np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_metadata(writer: Any, name: str, config: Config) -> None:
    heads = config.get("num_attention_heads", 0)
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    head_dim = config.get("qk_rope_head_dim") or head_dim
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config.get("max_position_embeddings", 2048))
    writer.add_embedding_length(config["hidden_size"])
    width = config.get("intermediate_size_mlp") or config.get("intermediate_size")
    writer.add_feed_forward_length(width or 4 * config["hidden_size"])
    writer.add_head_count(heads)
    kinds = config.get("layer_types") or ()
    is_hybrid = bool({"conv", "linear_attention"} & set(kinds)) and "linear_num_key_heads" not in config
    attends = [kind == "full_attention" for kind in kinds]
    writer.add_head_count_kv(
        [_kv_heads(config) * each for each in attends] if is_hybrid else _kv_heads(config)
    )
    if config.get("head_dim") and "kv_lora_rank" not in config:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    for key, theirs in FLOATS.items():
        if config.get(key) is not None and not (name == "mpt" and key == "logit_scale"):
            writer.add_float32(f"{name}.{theirs}", config[key])
    if name == "olmo":
        writer.add_layer_norm_eps(1e-5)
    if name in ("lfm2", "lfm2moe"):
        writer.add_layer_norm_rms_eps(config["norm_eps"])
    if "linear_num_key_heads" in config:
        writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        writer.add_ssm_state_size(config["linear_key_head_dim"])
        writer.add_ssm_group_count(config["linear_num_key_heads"])
        writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
        writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
        writer.add_full_attention_interval(1 + config["layer_types"].index("full_attention"))
    if name == "mpt":
        writer.add_max_alibi_bias(config["attn_config"]["alibi_bias_max"])
    if "use_parallel_residual" in config:
        writer.add_parallel_residual(config["use_parallel_residual"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
        if name in ("olmo2", "exaone4"):
            writer.add_sliding_window_pattern([each == "sliding_attention" for each in config["layer_types"]])
    write_experts(writer, config)
    write_sizes(writer, config)
    _write_rope(writer, head_dim, config)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(["<|end|>", *"abcdefghij", "ab"])
    writer.add_token_types([3] + [1] * 11)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)


def _write_rope(writer: Any, head_dim: int, config: Config) -> None:
    import gguf

    rope = config.get("rope_parameters") or {}
    if "sliding_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    theta = rope.get("rope_theta", 10000.0)
    if rope.get("alpha"):
        theta *= rope["alpha"] ** (head_dim / (head_dim - 2))
    writer.add_rope_freq_base(theta)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    kind = rope.get("rope_type", "default")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if "llama_4_scaling_beta" in rope:
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    if kind in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "longrope":
        original = rope["original_max_position_embeddings"]
        ratio = config["max_position_embeddings"] / original
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(ratio) / np.log(original))))


def _converted(
    tensors: dict[str, Array], name: str, config: Config, writer: Any
) -> Iterator[tuple[str, Array]]:
    """Tensors by Hugging Face's names, changed as llama.cpp's converter does."""
    heads, kv_heads = config.get("num_attention_heads", 0), _kv_heads(config)
    rope = config.get("rope_parameters") or {}
    for key in ("long", "short"):
        if f"{key}_factor" in rope:
            yield f"rope_factors_{key}.weight", np.array(rope[f"{key}_factor"], np.float32)
    if rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", _llama3_factors(config, rope)
    if name == "apertus":
        for key in ("alpha_n", "alpha_p", "beta", "eps"):
            found = [tensors.pop(each) for each in sorted(tensors) if each.endswith(f".{key}")]
            getattr(writer, f"add_xielu_{key}")([float(each.flat[0]) for each in found])
    for stem, group in _numbered(tensors).items():
        yield stem, np.stack([tensors.pop(each) for each in group])
    for key, array in (each for pair in tensors.items() for each in converted(*pair, config)):
        if experts := _fused_experts(key, array, name):
            yield from experts.items()
            continue
        if key.endswith("kv_b_proj.weight") and "merged_kv_b" not in config:
            yield from split_keys_and_values(key, array, config)
            continue
        if name in PERMUTED and re.search(r"[qk]_proj\.(weight|bias)$", key):
            count = heads if "q_proj" in key else kv_heads
            array = array.reshape(count, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        elif "linear_attn." in key:
            yield from _delta_net(key, array, name, config)
            continue
        elif name in PLUS_ONE and key.endswith("norm.weight"):
            array = array + 1
        elif name == "gpt2" and key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            array = array.T
        elif key.endswith("shared_expert_gate.weight"):
            array = array[0]
        elif key.endswith(".sinks"):
            key += ".weight"
        elif "query_key_value" in key:
            array = _separated(array, heads, kv_heads)
        elif key.endswith("conv.weight"):
            array = array[:, 0]
        elif key.endswith((".expert_bias", ".e_score_correction_bias")):
            key = key.replace("correction_bias", "correction").removesuffix(".bias") + ".bias"
            array = array.reshape(-1)
        yield key.removeprefix("transformer.") if name == "bloom" else key, array


def _delta_net(key: str, array: Array, name: str, config: Config) -> Iterator[tuple[str, Array]]:
    """Weights of the gated delta rule. Qwen3.5's heads of values are reordered: the first of each group, then
    the second."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_width, width = config["linear_key_head_dim"], config["linear_value_head_dim"]
    start = 2 * keys * key_width if "qkv" in key or "conv1d" in key else 0
    if key.endswith("A_log"):
        array = -np.exp(array)
    elif key.endswith("dt_bias"):
        key = key.replace("dt_bias", "dt_proj.bias")
    elif "conv1d" in key:
        array = array[:, 0]
    if "in_proj_qkvz" in key:
        block = key.split(".")[2]
        groups = array.reshape(keys, -1, array.shape[1])
        ends = np.cumsum([key_width, key_width, values // keys * width])
        parts = [part.reshape(-1, array.shape[1]) for part in np.split(groups, ends, 1)]
        yield f"blk.{block}.attn_qkv.weight", np.concatenate(parts[:3])
        yield f"blk.{block}.attn_gate.weight", parts[3]
        return
    if name in ("qwen35", "qwen35moe") and not key.endswith("norm.weight"):
        array = array.T if "out_proj" in key else array
        heads = array[start:].reshape(keys, values // keys, -1, *array.shape[1:]).swapaxes(0, 1)
        array = np.concatenate([array[:start], heads.reshape(-1, *array.shape[1:])])
        array = array.T if "out_proj" in key else array
    yield key, array


def _separated(array: Array, heads: int, kv_heads: int) -> Array:
    """Queries, keys and values of each group of heads -> all queries, all keys, all values."""
    count = heads // kv_heads
    groups = array.reshape(kv_heads, count + 2, -1, *array.shape[1:])
    parts = (groups[:, :count], groups[:, count], groups[:, count + 1])
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])


def _numbered(tensors: dict[str, Array]) -> dict[str, list[str]]:
    """Norms of heads and matrices of experts in tensors of their own, by the name of the stacked one."""
    found: dict[str, list[str]] = {}
    for key in sorted(tensors):
        if matched := re.fullmatch(r"(.+)(?:(?<=_layernorm)\.norms|(?<=\.experts))\.\d+(\..*)", key):
            found.setdefault(matched[1] + matched[2], []).append(key)
    return found


def _fused_experts(key: str, array: Array, name: str) -> dict[str, Array]:
    """Gate, up and down of tensors that hold the experts of Granite ([experts, rows, columns], gate above
    up), Llama 4 ([experts, columns, rows], gate before up) or gpt-oss (the same, gate and up in turn)."""
    matched = re.match(
        r"model\.layers\.(\d+)\..*(input_linear|(?<=\.)experts\.gate_up_proj|(?<=\.)experts\.down_proj)", key
    )
    if matched is None:
        return {}
    stem, kind = f"blk.{matched[1]}.ffn", "bias" if key.endswith("bias") else "weight"
    if matched[2] == "input_linear":
        gate, up = np.split(array, 2, axis=1)
    else:
        array = array.swapaxes(1, 2) if kind == "weight" else array
        if matched[2].endswith("down_proj"):
            return {f"{stem}_down_exps.{kind}": array}
        gate, up = np.split(array, 2, axis=1) if name == "llama4" else (array[:, ::2], array[:, 1::2])
    return {f"{stem}_gate_exps.{kind}": gate, f"{stem}_up_exps.{kind}": up}


def _llama3_factors(config: Config, rope: Config) -> Array:
    dims = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    frequencies = rope["rope_theta"] ** -(np.arange(0, dims, 2) / dims)
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    slow, fast = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - slow) / (fast - slow), 0, 1)
    return np.asarray(1 / (smooth + (1 - smooth) / rope["factor"]), np.float32)


def _kv_heads(config: Config) -> int:
    heads: int = config.get("num_attention_heads", 0)
    if config["model_type"] == "falcon" and not config["new_decoder_architecture"]:
        return 1 if config["multi_query"] else heads
    return config.get("num_kv_heads") or config.get("num_key_value_heads") or heads
