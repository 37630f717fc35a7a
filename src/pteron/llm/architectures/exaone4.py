"""EXAONE 4: norms of results and of heads; in the 32B model, three of four layers have windows, the others no
positions."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import Config
from pteron.llm.architectures.olmo import GGUF_NAMES, NAMES
from pteron.llm.architectures.parts import Block, Decoder, GatedMlp, RmsNorm


def decoder(config: Config) -> Decoder:
    norm, mlp = RmsNorm(float(config["rms_norm_eps"])), GatedMlp(config.get("hidden_act", "silu"))
    rotated = replace(llama.attention(config), head_norm=norm)
    attend = llama.by_layer(config, rotated, replace(rotated, rotary=None), every=4)
    count, has_windows = int(config["num_hidden_layers"]), bool(config.get("sliding_window"))
    attentions = [attend(index) if has_windows else rotated for index in range(count)]
    blocks = tuple(Block(attention, mlp, None, result_norm=norm) for attention in attentions)
    return Decoder(blocks, norm)


FAMILIES = {"exaone4": Family(decoder, NAMES, GGUF_NAMES)}
