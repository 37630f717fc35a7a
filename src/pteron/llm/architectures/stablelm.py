"""StableLM 2: Llama with layer norms and rotary embeddings of a part of each head; the 12B model in parallel,
with norms of each head."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import Block, Decoder, GatedMlp, HeadLayerNorm, IfPresent, LayerNorm
from pteron.llm.build.graph import Tensor
from pteron.llm.build.network import Network


@dataclass(frozen=True)
class SeparateNorms(HeadLayerNorm):
    """Weights of heads in tensors of their own, as Hugging Face stores them."""

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        weights = [net.weight(f"{place}.{head}.weight").read() for head in range(x.shape[-2])]
        return self.weighted(net, x, place, net.computed(np.stack(weights)))


def decoder(config: Config) -> Decoder:
    eps = float(config["layer_norm_eps"])
    norm = SeparateNorms(eps) if config.get("qk_layernorm") else IfPresent(HeadLayerNorm(eps))
    attention = replace(llama.attention(config), head_norm=norm)
    mlp, is_parallel = GatedMlp(config.get("hidden_act", "silu")), bool(config.get("use_parallel_residual"))
    block = Block(attention, mlp, LayerNorm(eps), parallel=is_parallel)
    return Decoder((block,) * int(config["num_hidden_layers"]), LayerNorm(eps))


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.q_layernorm.norms.{}": "layers.{}.attention.q_norm_fn.{}",
    "model.layers.{}.self_attn.k_layernorm.norms.{}": "layers.{}.attention.k_norm_fn.{}",
}
FAMILIES = {"stablelm": Family(decoder, NAMES, GGUF)}
