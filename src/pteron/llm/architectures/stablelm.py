"""StableLM 2: Llama with layer norms and rotary embeddings of a part of each head; the 12B model in parallel,
with norms of each head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, stack
from pteron.llm.architectures.names import GGUF, HUGGING_FACE
from pteron.llm.architectures.parts import Decoder, HeadLayerNorm, IfPresent
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


@dataclass(frozen=True)
class SeparateNorms(HeadLayerNorm):
    """Weights of heads in tensors of their own, as Hugging Face stores them."""

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        weights = [net.weight(f"{place}.{head}.weight").read() for head in range(x.shape[-2])]
        return self.weighted(net, x, place, net.computed(np.stack(weights)))


def decoder(config: Config) -> Decoder:
    eps = config.layer_norm.eps
    norm = SeparateNorms(eps) if config.get("qk_layernorm") else IfPresent(HeadLayerNorm(eps))
    is_parallel = bool(config.get("use_parallel_residual"))
    return stack(config, config.attention(head_norm=norm), norm=config.layer_norm, parallel=is_parallel)


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.q_layernorm.norms.{}": "layers.{}.attention.q_norm_fn.{}",
    "model.layers.{}.self_attn.k_layernorm.norms.{}": "layers.{}.attention.k_norm_fn.{}",
}
FAMILIES = {"stablelm": Family(decoder, NAMES, GGUF)}
