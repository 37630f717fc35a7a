"""GPT-NeoX, also of Pythia: attention and MLP in parallel, each after its own norm. GPT-J: after one norm,
with rotary pairs as neighbours. Both rotate a part of each head."""

from __future__ import annotations

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, stack
from pteron.llm.architectures.gpt2 import KEYS
from pteron.llm.architectures.names import GGUF_PLAIN_MLP, Names, split_grouped_qkv, split_qkv
from pteron.llm.architectures.parts import Decoder, Mlp


def gpt_neox(config: Config) -> Decoder:
    is_parallel = bool(config.get("use_parallel_residual", True))
    return stack(config, None, Mlp(config.activation("gelu")), config.layer_norm, parallel=is_parallel)


def gptj(config: Config) -> Decoder:
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    partial = (config.get("rotary_dim") or head_dim) / head_dim
    attention = config.changed(partial_rotary_factor=partial).attention(interleaved=True)
    return stack(config, attention, Mlp(config.activation("gelu_new")), config.layer_norm, parallel=True)


GPT_NEOX: Names = {
    "gpt_neox.embed_in": "tok_embeddings",
    "gpt_neox.final_layer_norm": "norm",
    "embed_out": "output",
    "lm_head": "output",
    "gpt_neox.layers.{}.input_layernorm": "layers.{}.attention_norm",
    "gpt_neox.layers.{}.post_attention_layernorm": "layers.{}.ffn_norm",
    "gpt_neox.layers.{}.attention.query_key_value": split_grouped_qkv,
    "gpt_neox.layers.{}.attention.dense": "layers.{}.attention.wo",
    "gpt_neox.layers.{}.mlp.dense_h_to_4h": "layers.{}.feed_forward.w1",
    "gpt_neox.layers.{}.mlp.dense_4h_to_h": "layers.{}.feed_forward.w2",
    "gpt_neox.layers.{}.attention.bias": None,  # masks
    "gpt_neox.layers.{}.attention.masked_bias": None,
    "gpt_neox.layers.{}.attention.rotary_emb.inv_freq": None,
}
GPTJ: Names = {
    "transformer.wte": "tok_embeddings",
    "transformer.ln_f": "norm",
    "lm_head": "output",
    "transformer.h.{}.ln_1": "layers.{}.attention_norm",
    "transformer.h.{}.attn.q_proj": "layers.{}.attention.wq",
    "transformer.h.{}.attn.k_proj": "layers.{}.attention.wk",
    "transformer.h.{}.attn.v_proj": "layers.{}.attention.wv",
    "transformer.h.{}.attn.out_proj": "layers.{}.attention.wo",
    "transformer.h.{}.mlp.fc_in": "layers.{}.feed_forward.w1",
    "transformer.h.{}.mlp.fc_out": "layers.{}.feed_forward.w2",
    "transformer.h.{}.attn.bias": None,  # masks
    "transformer.h.{}.attn.masked_bias": None,
}
GGUF_NAMES: Names = {**GGUF_PLAIN_MLP, "blk.{}.attn_qkv": split_qkv}
# Older files of GPT-NeoX.
_KEYS = {"partial_rotary_factor": "rotary_pct", "rope_theta": "rotary_emb_base"}
FAMILIES = {
    "gpt_neox": Family(gpt_neox, GPT_NEOX, GGUF_NAMES, _KEYS, architecture="gptneox"),
    "gptj": Family(gptj, GPTJ, None, KEYS),
}
