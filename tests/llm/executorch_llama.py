"""Llama checkpoints in PyTorch, for goldens: ExecuTorch's own module, and a decoder without its code.

In: a checkpoint as Pteron's readers return it. Out: a module that is quantised as ExecuTorch's exporter does
it, with its cache, or the logits of a text in the type of the weights.
"""

# mypy: ignore-errors
# (torch is untyped to mypy here)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pteron.llm.export.checkpoint import EMBEDDING_WEIGHT, Checkpoint
from pteron.llm.network.options import Options

_INT8_MAX = 127


def parameters_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Fields of ExecuTorch's `ModelArgs`."""
    attention = checkpoint.decoder.layers[0].attention
    rotary = attention.rotary
    dims = 2 * len(rotary.frequencies)
    parameters = {
        "dim": checkpoint.tensors[EMBEDDING_WEIGHT].shape[1],
        "n_layers": len(checkpoint.decoder.layers),
        "n_heads": attention.heads,
        "n_kv_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "vocab_size": checkpoint.vocabulary_size,
        "hidden_dim": checkpoint.tensors["layers.0.feed_forward.w1.weight"].rows,
        "norm_eps": float(checkpoint.config["rms_norm_eps"]),
        "attention_qkv_bias": "layers.0.attention.wq.bias" in checkpoint.tensors,
        "rope_theta": rotary.theta,
        "use_hf_rope": not rotary.interleaved,
        "partial_rotary_factor": dims / attention.head_dim,
    }
    plain = [rotary.theta ** (-2 * index / dims) for index in range(len(rotary.frequencies))]
    factors = [each / frequency for each, frequency in zip(plain, rotary.frequencies, strict=True)]
    if any(abs(factor - 1) > 1e-5 for factor in factors):  # frequencies are rounded to f32
        parameters["rope_scaling_short_factor"] = factors
    if attention.head_norm:
        parameters |= {"use_qk_norm": True, "qk_norm_before_rope": True}
    return parameters


def weights_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """All weights as tensors, by place."""
    import torch

    return {place: torch.from_numpy(tensor.read().copy()) for place, tensor in checkpoint.tensors.items()}


# ExecuTorch's module ----------------------------------------------------------------------------------


def eager_model(checkpoint: Checkpoint, options: Options, folder: Path) -> Any:
    """The quantised module that ExecuTorch's exporter exports; its files are written to the folder."""
    import torch
    from executorch.examples.models.llama.export_llama_lib import _prepare_for_llama_export

    model = _prepare_for_llama_export(
        config_of(parameters_of(checkpoint), weights_of(checkpoint), options, folder)
    ).model.eval()
    if options.quantize == "8w":  # which that exporter does not have
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                scales = layer.weight.detach().abs().amax(1, keepdim=True) / _INT8_MAX
                layer.weight.data = (layer.weight.detach() / scales).round() * scales
    return model


def config_of(parameters: dict[str, Any], weights: dict[str, Any], options: Options, folder: Path) -> Any:
    """The configuration of ExecuTorch's exporter for a model whose files it reads from the folder."""
    import torch
    from executorch.extension.llm.export.config.llm_config import DtypeOverride, LlmConfig, ModelType

    (folder / "params.json").write_text(json.dumps(parameters), "utf-8")
    torch.save(weights, folder / "checkpoint.pth")
    config = LlmConfig()
    config.base.model_class = ModelType.llama3_2
    config.base.params = str(folder / "params.json")
    config.base.checkpoint = str(folder / "checkpoint.pth")
    config.base.metadata = "{}"
    config.model.use_kv_cache = True
    config.model.use_sdpa_with_kv_cache = True
    config.model.enable_dynamic_shape = True
    config.model.dtype_override = DtypeOverride.fp32
    # The exporter allows one token less per call than this value.
    config.export.max_seq_length = options.max_seq_len + 1
    config.export.max_context_length = options.max_context_len
    config.export.output_dir = str(folder)
    config.export.output_name = str(folder / "model.pte")
    config.quantization.qmode = None if options.quantize == "8w" else options.quantize
    config.quantization.group_size = options.group_size
    config.quantization.use_hqq = options.rounding == "nearest"
    if options.embedding_bits:
        # The same group size as the weights: a tied table is then stored once.
        config.quantization.embedding_quantize = f"{options.embedding_bits},{options.group_size}"
    config.backend.vulkan.enabled = True
    config.debug.generate_full_logits = options.full_logits
    return config


# Plain PyTorch ------------------------------------------------------------------------------------------


def logits_of(parameters: dict[str, Any], weights: dict[str, Any], ids: list[int]) -> Any:
    """The logits of a text's tokens [tokens, vocabulary]."""
    from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

    def product(values: Any, place: str) -> Any:
        return linear(values, weights[f"{place}.weight"], weights.get(f"{place}.bias"))

    def norm(values: Any, place: str) -> Any:
        return rms_norm(values, values.shape[-1:], weights[f"{place}.weight"], parameters["norm_eps"])

    def heads(values: Any, place: str, normed: str | None = None) -> Any:
        found = product(values, place).unflatten(-1, (-1, parameters["head_dim"])).transpose(0, 1)
        return norm(found, normed) if normed and parameters.get("use_qk_norm") else found

    hidden = weights[EMBEDDING_WEIGHT][ids]
    for layer in range(parameters["n_layers"]):
        attention, mlp = f"layers.{layer}.attention", f"layers.{layer}.feed_forward"
        inputs = norm(hidden, f"{attention}_norm")
        queries = _rotated(heads(inputs, f"{attention}.wq", f"{attention}.q_norm_fn"), parameters)
        keys = _rotated(heads(inputs, f"{attention}.wk", f"{attention}.k_norm_fn"), parameters)
        values = heads(inputs, f"{attention}.wv")
        attended = scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        hidden = hidden + product(attended.transpose(0, 1).flatten(1), f"{attention}.wo")
        inputs = norm(hidden, f"layers.{layer}.ffn_norm")
        gated = silu(product(inputs, f"{mlp}.w1")) * product(inputs, f"{mlp}.w3")
        hidden = hidden + product(gated, f"{mlp}.w2")
    return product(norm(hidden, "norm"), "output")


def _rotated(values: Any, parameters: dict[str, Any]) -> Any:
    """RoPE of [heads, tokens, head_dim]: each pair of columns is a complex number, rotated by an angle
    proportional to the position."""
    import torch

    dims = int(parameters["head_dim"] * parameters["partial_rotary_factor"])
    rotated, kept = values[..., :dims], values[..., dims:]
    frequencies = parameters["rope_theta"] ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    frequencies /= torch.tensor(parameters.get("rope_scaling_short_factor") or 1.0).double()
    angles = torch.outer(torch.arange(values.shape[1], dtype=torch.float64), frequencies)
    cos, sin = angles.cos().to(values.dtype), angles.sin().to(values.dtype)
    in_halves = parameters["use_hf_rope"]
    real, imaginary = rotated.chunk(2, -1) if in_halves else (rotated[..., 0::2], rotated[..., 1::2])
    parts = [real * cos - imaginary * sin, real * sin + imaginary * cos]
    rotated = torch.cat(parts, -1) if in_halves else torch.stack(parts, -1).flatten(-2)
    return torch.cat([rotated, kept], -1)
