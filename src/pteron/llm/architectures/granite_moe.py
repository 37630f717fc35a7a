"""Granite MoE: Granite with experts, gate and up in one tensor."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import granite
from pteron.llm.architectures.experts import GGUF_EXPERTS, experts_of, flattened, halved
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.llama import GGUF_INTERLEAVED
from pteron.llm.architectures.names import HUGGING_FACE, Config
from pteron.llm.architectures.parts import Block, Decoder


def decoder(config: Config) -> Decoder:
    dense = granite.decoder(config)
    experts = experts_of(config)
    blocks = [block for block in dense.layers if isinstance(block, Block)]
    return replace(dense, layers=tuple(replace(block, mlp=experts) for block in blocks))


_FEED = "layers.{}.feed_forward"
NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.block_sparse_moe.router.layer": f"{_FEED}.router",
    "model.layers.{}.block_sparse_moe.input_linear": halved(f"{_FEED}.experts.w1", f"{_FEED}.experts.w3"),
    "model.layers.{}.block_sparse_moe.output_linear": flattened(f"{_FEED}.experts.w2"),
}
FAMILIES = {
    "granitemoe": Family(decoder, NAMES, {**GGUF_INTERLEAVED, **GGUF_EXPERTS}),
}
