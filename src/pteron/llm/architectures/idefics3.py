"""Idefics 3 and SmolVLM: a Llama that reads images through a SigLIP encoder. Blocks of patches are joined
("pixel shuffle") and multiplied with one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.dense import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import HUGGING_FACE, Names
from pteron.llm.architectures.parts import Block, Mlp
from pteron.llm.architectures.vision import Encoder, FullAttention, Vision, as_matrix
from pteron.llm.images.tiles import TileLayout

_DEFAULTS = {  # of transformers' Idefics3VisionConfig
    "hidden_size": 1152,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}


def encoder(config: dict[str, Any], tiles: TileLayout) -> Encoder:
    """The encoder of a whole configuration, for tiles of a size."""
    vision = Config(_DEFAULTS | config["vision_config"])
    norm = vision.layer_norm
    block = Block(FullAttention(int(vision["num_attention_heads"])), Mlp(vision.activation()), norm)
    return Encoder(
        tiles,
        int(vision["num_channels"]),
        _positions(tiles.side, int(vision["image_size"]) // int(vision["patch_size"])),
        (block,) * len(vision.layers),
        norm,
    )


def tile_layout(config: dict[str, Any], size: int) -> TileLayout:
    """The tiles of a configuration, which are `size` pixels wide."""
    patch = int({**_DEFAULTS, **config["vision_config"]}["patch_size"])
    return TileLayout(size, patch, int(config.get("scale_factor") or 2))


def _positions(side: int, learned: int) -> tuple[int, ...]:
    """The learned position of each patch: those of a square of `learned` x `learned`, by where the patch is
    in the tile. Computed in f32 as transformers does, whose rounding models are trained with."""
    limits = (np.arange(1, learned) / learned).astype(np.float32)
    places = np.arange(side, dtype=np.float32) * np.float32(1 / side)
    nearest = np.searchsorted(limits, np.minimum(places, np.float32(1 - 1e-6)), side="right")
    return tuple(int(line * learned + column) for line in nearest for column in nearest)


_VISION: Names = {
    "model.vision_model.embeddings.patch_embedding": as_matrix("vision.patches"),
    "model.vision_model.embeddings.position_embedding": "vision.positions",
    "model.vision_model.encoder.layers.{}.layer_norm1": "vision.layers.{}.attention_norm",
    "model.vision_model.encoder.layers.{}.self_attn.q_proj": "vision.layers.{}.attention.wq",
    "model.vision_model.encoder.layers.{}.self_attn.k_proj": "vision.layers.{}.attention.wk",
    "model.vision_model.encoder.layers.{}.self_attn.v_proj": "vision.layers.{}.attention.wv",
    "model.vision_model.encoder.layers.{}.self_attn.out_proj": "vision.layers.{}.attention.wo",
    "model.vision_model.encoder.layers.{}.layer_norm2": "vision.layers.{}.ffn_norm",
    "model.vision_model.encoder.layers.{}.mlp.fc1": "vision.layers.{}.feed_forward.w1",
    "model.vision_model.encoder.layers.{}.mlp.fc2": "vision.layers.{}.feed_forward.w2",
    "model.vision_model.post_layernorm": "vision.norm",
    "model.connector.modality_projection.proj": "vision.connector",
}
NAMES: Names = {
    **{name.replace("model.", "model.text_model.", 1): rule for name, rule in HUGGING_FACE.items()},
    **_VISION,
}
_FAMILY = Family(llama, NAMES, vision=Vision(encoder, tile_layout, "idefics3"))
FAMILIES = {"idefics3": _FAMILY, "smolvlm": _FAMILY}
