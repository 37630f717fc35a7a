"""Settings of configurations that no golden has: what they change in the parts of a model."""

from __future__ import annotations

import re
from contextlib import suppress
from operator import attrgetter
from typing import Any

import pytest
from checkpoints import NAMES, Golden

from pteron.errors import UnsupportedError
from pteron.llm.architectures import FAMILIES
from pteron.llm.architectures.defaults import with_defaults
from pteron.llm.architectures.parts import Decoder

KIND = "__class__.__name__"


def decoder_of(name: str, setting: dict[str, Any]) -> Decoder:
    """The model of a golden with another setting; groups of settings keep the rest of theirs."""
    before = Golden.load(name).config
    changed = {
        key: before[key] | value if isinstance(before.get(key), dict) else value
        for key, value in setting.items()
    }
    config = with_defaults(before | changed)
    family = FAMILIES[config["model_type"]]
    return family.decoder(family.normalized(config))


SLOPES = (2**-1, 2**-2, 2**-3, 2**-4)
SLOPES_OF_SIX = (2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3)  # those of four heads, then some of eight
DEEP = {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True}


@pytest.mark.parametrize(
    ("name", "setting", "of_layer", "expected"),
    [
        ("mpt", {"attn_config": {"softmax_scale": 0.3}}, "attention.scale", [0.3] * 3),
        ("mpt", {"attn_config": {"clip_qkv": 6}}, "attention.clip", [6] * 3),
        ("mpt", {"attn_config": {"alibi_bias_max": 4}}, "attention.slopes", [SLOPES] * 3),
        ("mpt", {"n_heads": 6}, "attention.slopes", [SLOPES_OF_SIX] * 3),
        ("gpt2", {"scale_attn_weights": False}, "attention.scale", [1.0] * 3),
        ("gpt2", DEEP, "attention.scale", [1, 1 / 2, 1 / 3]),
        ("opt", {"layer_norm_elementwise_affine": False}, "input_norm.has_weight", [False] * 3),
        ("gemma3", {"attn_logit_softcapping": 20.0}, "attention.softcap", [20.0] * 6),
        ("mixtral", {"sliding_window": 8}, "attention.window", [8] * 3),
        ("starcoder2", {"sliding_window": None}, "attention.window", [None] * 3),
        ("gpt_oss", {"layer_types": None}, "attention.window", [8, None, 8]),
        ("gemma2", {"layer_types": None}, "attention.window", [8, None, 8]),
        ("cohere2", {"layer_types": None}, "attention.window", [8, 8, 8, None]),
        (
            "gemma3",
            {"layer_types": None, "sliding_window_pattern": 2},
            "attention.window",
            [8, None, 8, None, 8, None],
        ),
        ("llama4", {"attention_chunk_size": 4096}, "attention.limit", [4096] * 4),
        ("llama4", {"floor_scale": 100}, "attention.limit", [99] * 4),
        ("llama4", {"attn_temperature_tuning": False}, "attention.limit", [8192] * 4),
        ("llama4", {"use_qk_norm": False}, "attention.attention.head_norm", [None] * 4),
        (
            "llama4",
            {"no_rope_layers": None, "no_rope_layer_interval": 2},
            f"attention.attention.rotary.{KIND}",
            ["Rotary", "NoneType"] * 2,
        ),
        (
            "smollm3",
            {"no_rope_layers": None, "no_rope_layer_interval": 2},
            f"attention.rotary.{KIND}",
            ["Rotary", "NoneType"] * 2,
        ),
        ("llama4", {"moe_layers": None}, f"mlp.{KIND}", ["GatedMlp", "Experts"] * 2),
        ("llama4", {"moe_layers": None, "interleave_moe_layer_step": 1}, f"mlp.{KIND}", ["Experts"] * 4),
        ("deepseek_v3", {"first_k_dense_replace": 2}, f"mlp.{KIND}", ["GatedMlp", "GatedMlp", "Experts"]),
        (
            "ernie4_5_moe",
            {"moe_layer_start_index": 0, "moe_layer_interval": 2},
            f"mlp.{KIND}",
            ["GatedMlp", "Experts", "GatedMlp"],
        ),
        ("ernie4_5_moe", {"moe_layer_end_index": 1}, f"mlp.{KIND}", ["GatedMlp", "Experts", "GatedMlp"]),
        ("ernie4_5_moe", {"moe_layer_end_index": -1}, f"mlp.{KIND}", ["GatedMlp", "Experts", "Experts"]),
        (
            "lfm2",
            {"layer_types": None, "full_attn_idxs": [0]},
            f"attention.{KIND}",
            ["Attention", "function", "function"],
        ),
        ("lfm2", {"layer_types": None}, f"attention.{KIND}", ["Attention"] * 3),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": None}},
            "attention.rotary.length",
            [128] * 3,
        ),
        (
            "qwen3_next",
            {"layer_types": None, "full_attention_interval": 2},
            f"attention.{KIND}",
            ["GatedDeltaNet", "Attention", "GatedDeltaNet"],
        ),
    ],
    ids=str,
)
def test_settings_of_layers(name: str, setting: dict[str, Any], of_layer: str, expected: list[Any]) -> None:
    assert [attrgetter(of_layer)(layer) for layer in decoder_of(name, setting).layers] == expected


def test_settings_of_logits() -> None:
    assert decoder_of("opt", {"_remove_final_layer_norm": True}).norm is None
    assert decoder_of("gemma3", {"final_logit_softcapping": 20.0}).logit_softcap == 20


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("mpt", {"attn_config": {"alibi": False}}, "alibi is False; only True is supported"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "qk_ln is True"),
        (
            "mpt",
            {"attn_config": {"attn_type": "multiquery_attention"}},
            "attn_type is 'multiquery_attention'",
        ),
        ("mpt", {"norm_type": "rmsnorm"}, "norm_type is 'rmsnorm'"),
        ("mpt", {"logit_scale": 0.5}, "logit_scale is 0.5; only None"),
        ("mpt", {"embedding_fraction": 0.5}, "embedding_fraction is 0.5"),
        ("falcon_rw", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post"),
        ("lfm2_moe", {"use_expert_bias": False}, "use_expert_bias is False"),
        ("mamba2", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("falcon_h1", {"mamba_hidden_act": "relu"}, "mamba_hidden_act is 'relu'"),
        ("nemotron_h", {"sliding_window": 8}, "sliding_window is 8"),
        (
            "nemotron_h",
            {"layers_block_type": ["mamba", "cumulative"]},
            "layers of kind cumulative; known are",
        ),
        ("olmoe", {"clip_qkv": 6.0}, "bounds of queries, keys and values"),
        ("llama4", {"num_experts_per_tok": 2}, "Llama 4 with 2 experts per token"),
        ("deepseek_v2", {"norm_topk_prob": True}, "normalised weights of experts"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "experts chosen by 'noaux_tc'"),
    ],
    ids=str,
)
def test_refused_settings(name: str, setting: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        decoder_of(name, setting)


USED = re.compile(
    r"(eps|epsilon|hidden_act|activation_function|softcapping|_multiplier|_scaling|_scale|per_tok)$"
)
UNUSED = {  # by the beginning of the golden's name
    "falcon_h1": r"(key|(attention|ssm)_(in|out))_multiplier",  # weights are multiplied
    "gemma": "hidden_act",  # older files state one that the model does not compute
    "gpt_oss": "hidden_act",
    "granitehybrid": "num_experts_per_tok",  # without experts
    "lfm2": "block_ffn_dim_multiplier",
    "llama4": "attn_scale",  # of contexts that are refused
    "nemotron_h": "num_experts_per_tok",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_used(name: str) -> None:
    """No part has a constant where the configuration has a number, or the name of an activation."""
    config, plain = Golden.load(name).config, decoder_of(name, {})
    assert decoder_of(name, {}) == plain
    unused = next((keys for family, keys in UNUSED.items() if name.startswith(family)), "none")
    for key, value in config.items():
        if not USED.search(key) or not value or re.fullmatch(unused, key):
            continue
        other = 2 * value if not isinstance(value, str) else "gelu" if value == "relu" else "relu"
        with suppress(UnsupportedError):
            assert decoder_of(name, {key: other}) != plain, key
