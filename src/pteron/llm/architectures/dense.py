"""Families of dense layers that are Llama but for a few parts, each with the names of its tensors.

Llama is pre-norm layers with grouped attention, rotary embeddings and SwiGLU.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.experts import GGUF_EXPERTS, count_of, experts_of
from pteron.llm.architectures.family import Family, Layers, stack
from pteron.llm.architectures.names import (
    GGUF,
    GGUF_INTERLEAVED,
    GGUF_PLAIN_MLP,
    HUGGING_FACE,
    PLAIN_MLP,
    Names,
    of_text_model,
    plus_one,
    split_gate_up,
    split_qkv,
)
from pteron.llm.architectures.parts import Attention, Decoder, LayerNorm, Mlp
from pteron.llm.architectures.rotary import rotary_of_kind


def llama(config: Config) -> Decoder:
    """Also SmolLM2, Seed-OSS and many others. GGUF files of Mixtral have this architecture too."""
    return stack(config, mlp=experts_of(config) if count_of(config) else None)


def arcee(config: Config) -> Decoder:
    """A plain MLP."""
    return stack(config, mlp=Mlp(config.activation("relu2")))


def interleaved(config: Config) -> Decoder:
    """ERNIE 4.5, and GLM-4, which rotates a part of each head: rotary pairs are neighbours."""
    return stack(config, config.attention(interleaved=True))


def glm4(config: Config) -> Decoder:
    """The models of 0414 add norms of results."""
    return stack(config, config.attention(interleaved=True), result_norm=config.norm)


def mistral(config: Config) -> Decoder:
    """In older models with a sliding window; also Phi-3, Phi-3.5 and Phi-4."""
    return stack(config, config.attention(window=config.window))


def ministral(config: Config) -> Decoder:
    """A window in the layers that it lists."""
    if not config.get("layer_types"):
        return mistral(config)
    windowed = config.attention(window=config.window)
    return stack(config, config.alternating(windowed, config.attention(), every=1))


def ministral3(config: Config) -> Decoder:
    """Queries that grow with their position. Without `llama_4_scaling_beta`, it is Mistral Small 3."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    beta = float(rope.get("llama_4_scaling_beta") or 0)
    temperature = (beta, int(rope["original_max_position_embeddings"])) if beta else None
    return stack(config, config.attention(window=config.window, temperature=temperature))


def _mistral3_from_gguf(config: Config) -> Config:
    beta = config.get("attention.temperature_scale")
    return config.changed(rope_parameters=config["rope_parameters"] | {"llama_4_scaling_beta": beta})


def granite(config: Config, attention: Layers | None = None, mlp: Layers | None = None) -> Decoder:
    """Granite 3: factors of embeddings, scores, residuals and logits."""
    decoder = stack(
        config,
        attention or granite_attention(config),
        mlp,
        residual_scale=float(config.get("residual_multiplier", 1)),
    )
    embedding_scale = float(config.get("embedding_multiplier", 1))
    return replace(
        decoder, embedding_scale=embedding_scale, logit_scale=1 / float(config.get("logits_scaling", 1))
    )


def granite_attention(config: Config) -> Attention:
    return config.attention(scale=float(config.get("attention_multiplier", 1)))


GRANITE_KEYS = {  # of GGUF files
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "logits_scaling": "logit_scale",
    "residual_multiplier": "residual_scale",
}


def hunyuan(config: Config) -> Decoder:
    """Norms of each head after the rotation."""
    return stack(config, config.attention(rotated_norm=config.norm))


def qwen2(config: Config) -> Decoder:
    """Biases of queries, keys and values. A window is off in most models."""
    return _qwen(config, config.attention())


def qwen3(config: Config) -> Decoder:
    """Norms of each head."""
    return _qwen(config, config.attention(head_norm=config.norm))


def _qwen(config: Config, attention: Attention) -> Decoder:
    """Layers from `max_window_layers` on have windows."""
    first = int(config.get("max_window_layers") or 0)
    return stack(config, config.windowed([attention] * len(config.layers), lambda layer: layer >= first))


def smollm3(config: Config) -> Decoder:
    """Every fourth layer is without positions (NoPE)."""
    rotated = config.attention()
    plain = replace(rotated, rotary=None)
    stated = config.get("no_rope_layers")  # 1 for layers that have positions
    interval = int(config.get("no_rope_layer_interval") or 4)
    attentions = [
        rotated if (stated[layer] if stated else (layer + 1) % interval) else plain for layer in config.layers
    ]
    return stack(config, config.windowed(attentions, lambda layer: attentions[layer] is plain))


def olmo(config: Config) -> Decoder:
    """Norms without weights; their eps is in OLMo's source, not in configurations."""
    clip = config.get("clip_qkv")
    attention = config.attention(clip=None if clip is None else float(clip))
    return stack(config, attention, norm=LayerNorm(1e-5, has_weight=False))


def olmo2(config: Config) -> Decoder:
    """Norms of the results of attention and MLP, not of their inputs; norms of whole queries and keys. OLMo 3
    adds windows; only layers without one scale rotary embeddings."""
    full, sliding = (
        config.attention(
            projection_norm=config.norm,
            rotary=rotary_of_kind(config, config.head_sizes[2], kind),
            window=window,
        )
        for kind, window in (("full_attention", None), ("sliding_attention", config.window))
    )
    attention = config.alternating(sliding, full, every=4) if config.window else full
    return stack(config, attention, input_norm=None, result_norm=config.norm)


def exaone4(config: Config) -> Decoder:
    """Norms of results and of heads; in the 32B model, three of four layers have windows, the others no
    positions."""
    rotated = config.attention(head_norm=config.norm, window=config.window)
    full = replace(rotated, rotary=None, window=None)
    attention = config.alternating(rotated, full, every=4) if config.window else rotated
    return stack(config, attention, input_norm=None, result_norm=config.norm)


def starcoder2(config: Config) -> Decoder:
    """Layer norms, biases, a plain MLP, in some models a window."""
    mlp = Mlp(config.activation("gelu_pytorch_tanh"))
    return stack(config, config.attention(window=config.window), mlp, config.layer_norm)


def nemotron(config: Config) -> Decoder:
    """Also Minitron: layer norms whose weights are stored without 1, a plain MLP with ReLU², rotary
    embeddings of a part of each head."""
    return stack(config, mlp=Mlp(config.activation("relu2")), norm=config.layer_norm)


def phi(config: Config) -> Decoder:
    """Phi-1, Phi-1.5 and Phi-2: attention and MLP in parallel after one layer norm, biases everywhere, rotary
    embeddings of a part of each head."""
    norm = config.layer_norm
    attention = config.attention(head_norm=norm if config.get("qk_layernorm") else None)
    return stack(config, attention, Mlp(config.activation("gelu_new")), norm, parallel=True)


_ATTENTION, _FEED = "layers.{}.attention", "layers.{}.feed_forward"
_LAYER, _SELF_ATTN = "model.layers.{}", "model.layers.{}.self_attn"
_RESULT_NORMS: Names = {
    **HUGGING_FACE,
    f"{_LAYER}.post_attention_layernorm": "layers.{}.attention_result_norm",
    f"{_LAYER}.post_feedforward_layernorm": "layers.{}.ffn_result_norm",
}
GGUF_RESULT_NORMS: Names = {
    **GGUF,
    "blk.{}.post_attention_norm": "layers.{}.attention_result_norm",
    "blk.{}.post_ffw_norm": "layers.{}.ffn_result_norm",
}
_GLM: Names = {
    **HUGGING_FACE,
    f"{_LAYER}.mlp.gate_up_proj": split_gate_up,
    f"{_LAYER}.post_self_attn_layernorm": "layers.{}.attention_result_norm",
    f"{_LAYER}.post_mlp_layernorm": "layers.{}.ffn_result_norm",
}
_GLM_GGUF: Names = {**GGUF_RESULT_NORMS, "blk.{}.attn_qkv": split_qkv, "blk.{}.ffn_up": split_gate_up}
_HUNYUAN: Names = {
    **HUGGING_FACE,
    f"{_SELF_ATTN}.query_layernorm": f"{_ATTENTION}.q_norm_fn",
    f"{_SELF_ATTN}.key_layernorm": f"{_ATTENTION}.k_norm_fn",
}
_NEMOTRON: Names = {
    "model.norm.weight": plus_one("norm"),
    f"{_LAYER}.input_layernorm.weight": plus_one("layers.{}.attention_norm"),
    f"{_LAYER}.post_attention_layernorm.weight": plus_one("layers.{}.ffn_norm"),
    **PLAIN_MLP,
}
_PHI: Names = {
    **HUGGING_FACE,
    "model.final_layernorm": "norm",
    f"{_SELF_ATTN}.dense": f"{_ATTENTION}.wo",
    f"{_SELF_ATTN}.q_layernorm": f"{_ATTENTION}.q_norm_fn",
    f"{_SELF_ATTN}.k_layernorm": f"{_ATTENTION}.k_norm_fn",
    f"{_LAYER}.mlp.fc1": f"{_FEED}.w1",
    f"{_LAYER}.mlp.fc2": f"{_FEED}.w2",
}
_PHI3: Names = {
    **HUGGING_FACE,
    f"{_SELF_ATTN}.qkv_proj": split_qkv,
    f"{_LAYER}.mlp.gate_up_proj": split_gate_up,
}
_STARCODER2: Names = {
    **HUGGING_FACE,
    f"{_LAYER}.mlp.c_fc": f"{_FEED}.w1",
    f"{_LAYER}.mlp.c_proj": f"{_FEED}.w2",
}
FAMILIES = {
    "arcee": Family(arcee, PLAIN_MLP, {**GGUF_INTERLEAVED, "blk.{}.ffn_up": f"{_FEED}.w1"}),
    "ernie4_5": Family(interleaved, HUGGING_FACE, GGUF),
    "exaone4": Family(exaone4, _RESULT_NORMS, GGUF_RESULT_NORMS),
    "glm": Family(interleaved, _GLM, _GLM_GGUF, architecture="chatglm"),
    "glm4": Family(glm4, _GLM, _GLM_GGUF),
    "granite": Family(granite, HUGGING_FACE, GGUF_INTERLEAVED, GRANITE_KEYS),
    "hunyuan_v1_dense": Family(hunyuan, _HUNYUAN, GGUF, architecture="hunyuan-dense"),
    "llama": Family(llama, HUGGING_FACE, {**GGUF_INTERLEAVED, **GGUF_EXPERTS}),
    # GGUF files of Mistral and Ministral have the architecture `llama`.
    "mistral": Family(mistral, HUGGING_FACE),
    "ministral": Family(ministral, HUGGING_FACE),
    "ministral3": Family(ministral3, HUGGING_FACE),
    "mistral3": Family(
        ministral3,
        of_text_model(HUGGING_FACE),
        {**GGUF_INTERLEAVED, **GGUF_EXPERTS},
        from_gguf=_mistral3_from_gguf,
    ),
    "nemotron": Family(nemotron, _NEMOTRON, GGUF_PLAIN_MLP, {"layer_norm_eps": "norm_eps"}),
    "olmo": Family(olmo, HUGGING_FACE, GGUF_INTERLEAVED),
    "olmo2": Family(olmo2, _RESULT_NORMS, GGUF_RESULT_NORMS),
    "olmo3": Family(olmo2, _RESULT_NORMS),  # GGUF files have the architecture `olmo2`
    "phi": Family(phi, _PHI, {**GGUF_PLAIN_MLP, "blk.{}.attn_qkv": split_qkv}, architecture="phi2"),
    "phi3": Family(mistral, _PHI3, {**GGUF, "blk.{}.attn_qkv": split_qkv, "blk.{}.ffn_up": split_gate_up}),
    "qwen2": Family(qwen2, HUGGING_FACE, GGUF),
    "qwen3": Family(qwen3, HUGGING_FACE, GGUF),
    "seed_oss": Family(llama, HUGGING_FACE, {**GGUF, "blk.{}.post_attention_norm": "layers.{}.ffn_norm"}),
    "smollm3": Family(smollm3, HUGGING_FACE, GGUF_INTERLEAVED),
    "starcoder2": Family(starcoder2, _STARCODER2, GGUF_PLAIN_MLP, {"layer_norm_eps": "norm_epsilon"}),
}
