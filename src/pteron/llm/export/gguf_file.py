"""A GGUF file -> a checkpoint.

Its metadata become a configuration in Hugging Face's terms. Tensors are mapped, and dequantised to float32
some rows at a time.
"""

from __future__ import annotations

from math import isclose, log
from pathlib import Path
from typing import Any

from pteron.errors import UnsupportedError
from pteron.extras import need
from pteron.format.gguf import JOIN_PARTS, read_header
from pteron.format.gguf_tensors import read_tensor
from pteron.format.source import open_bytes
from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures import find_family
from pteron.llm.architectures.config import Config
from pteron.llm.export.checkpoint import Checkpoint, as_config_error, assemble
from pteron.llm.export.gguf_vocabulary import read_vocabulary
from pteron.llm.network.quantize import quantize_groups

GATING_FUNCTIONS = {1: "softmax", 2: "sigmoid"}  # of experts
OTHERS_GROUP = 32  # columns, of types without integers in groups, which are rounded to such
# Divisors of the rotary frequencies.
ROPE_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
# Keys after the architecture's name -> Hugging Face's.
KEYS = {
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.clamp_kqv": "clip_qkv",
    "attention.max_alibi_bias": "alibi_bias_max",
    "attention.sliding_window": "sliding_window",
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "expert_count": "num_experts",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "expert_shared_count": "n_shared_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_weights_norm": "norm_topk_prob",
    "expert_weights_scale": "routed_scaling_factor",
    "feed_forward_length": "intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
    "nextn_predict_layers": "num_nextn_predict_layers",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "vocab_size": "vocab_size",
}


def read_gguf(path: Path) -> Checkpoint:
    library = need("gguf", f"reading {path.name}")
    file = open_bytes(path, path.name)
    header = read_header(path)
    if (parts := header.fields.get("split.count", 1)) > 1:
        raise UnsupportedError(f"{path.name} is one of {parts} parts; {JOIN_PARTS}")
    fields, others = header.fields, (OTHERS_GROUP, quantize_groups)
    tensors = {info.name: read_tensor(library, info, file, others) for info in header.tensors}
    architecture = fields.get("general.architecture")
    family = find_family(path.name, architecture, gguf=True)
    with as_config_error(path.name):
        config = family.from_gguf(read_config(fields, str(architecture), tensors))
        vocabulary = read_vocabulary(fields, path.name)
    checkpoint = assemble(path.stem, config, family, tensors, family.gguf, vocabulary)
    checkpoint.licence = fields.get("general.license")
    return checkpoint


def read_config(fields: dict[str, Any], architecture: str, tensors: dict[str, StoredTensor]) -> Config:
    """The configuration of a file; keys that Hugging Face has no name for keep theirs."""
    prefix = f"{architecture}."
    values = {key.removeprefix(prefix): value for key, value in fields.items() if key.startswith(prefix)}
    config = {KEYS.get(key, key): value for key, value in values.items()}
    config["model_type"] = architecture
    config["num_hidden_layers"] -= config.get("num_nextn_predict_layers", 0)  # which blocks include
    heads = int(config["num_attention_heads"])  # 0 in models without attention
    config.setdefault("num_key_value_heads", heads)
    if isinstance(of_layers := config["num_key_value_heads"], list):
        config |= _kinds_of_layers(of_layers, config.get("intermediate_size"))
    head_dim = config.setdefault("head_dim", int(config["hidden_size"]) // max(heads, 1))
    if gating := values.get("expert_gating_func"):
        config["scoring_func"] = GATING_FUNCTIONS.get(gating, f"function {gating}")
    pattern = values.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        config["layer_types"] = ["sliding_attention" if each else "full_attention" for each in pattern]
    elif pattern:
        config["sliding_window_pattern"] = pattern
    config["rope_parameters"] = read_rope(values, tensors) | {
        "partial_rotary_factor": values.get("rope.dimension_count", head_dim) / head_dim
    }
    # Activations' parameters have no architecture in their keys.
    return Config(config | {key: value for key, value in fields.items() if key.startswith("xielu.")})


def _kinds_of_layers(kv_heads: list[int], widths: object) -> dict[str, Any]:
    """Of heads of keys in each layer: layers without them have no attention. Where each layer has its own
    width of an MLP, a layer is one or the other."""
    counts = {count for count in kv_heads if count}
    if len(counts) != 1:
        raise UnsupportedError(f"attention.head_count_kv is {kv_heads}; layers differ in heads of keys")
    kinds = ["full_attention" if count else "recurrent" for count in kv_heads]
    if isinstance(widths, list):
        kinds = ["mlp" if width else kind for kind, width in zip(kinds, widths, strict=True)]
    return {"num_key_value_heads": counts.pop(), "layer_types": kinds}


def read_rope(values: dict[str, Any], tensors: dict[str, StoredTensor]) -> dict[str, Any]:
    """How rotary embeddings are scaled."""
    scaling = {
        key.removeprefix("rope.scaling."): value
        for key, value in values.items()
        if key.startswith("rope.scaling.")
    }
    factor = scaling.get("factor", values.get("rope.scale_linear"))  # the second: in old files
    kind = scaling.get("type", "linear")  # as llama.cpp reads files without a type
    rope: dict[str, Any] = {
        "rope_type": "default" if kind == "none" or (kind == "linear" and not factor) else kind,
        "factor": factor,
        "beta_fast": scaling.get("yarn_beta_fast"),
        "beta_slow": scaling.get("yarn_beta_slow"),
    }
    if "original_context_length" in scaling:
        rope["original_max_position_embeddings"] = scaling["original_context_length"]
    if "yarn_log_multiplier" in scaling:
        rope |= {"mscale": 1.0, "mscale_all_dim": scaling["yarn_log_multiplier"]}
    if ROPE_FACTORS in tensors:
        rope |= {"rope_type": "factors", "factors": tensors[ROPE_FACTORS].read().tolist()}
    if LONG_FACTORS in tensors and SHORT_FACTORS in tensors:
        factors = {"long_factor": LONG_FACTORS, "short_factor": SHORT_FACTORS}
        rope |= {key: tensors[name].read().tolist() for key, name in factors.items()}
        rope |= {"rope_type": "longrope", "attention_factor": scaling.get("attn_factor")}
    elif rope["rope_type"] == "yarn":
        _check_yarn(scaling)
    return rope


def _check_yarn(scaling: dict[str, Any]) -> None:
    """Factors of attention mean different things in files of different ages; the usual one follows from the
    scaling factor."""
    usual = 0.1 * log(float(scaling["factor"])) + 1
    for key in ("attn_factor", "yarn_attn_factor"):
        found = float(scaling.get(key, usual))
        if not any(isclose(found, known, rel_tol=1e-4) for known in (1.0, usual)):
            raise UnsupportedError(f"rope.scaling.{key} is {found}; only 1 and {usual:.4f} are supported")
