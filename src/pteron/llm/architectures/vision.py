"""Parts of vision encoders, whose rows stand in place of token embeddings.

Weights are at places that begin with `vision.`; they are apart from those of the decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.errors import FormatError
from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.names import Rule
from pteron.llm.architectures.parts import Part
from pteron.llm.images.tiles import TileLayout
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import ImageNetwork, Network

PREFIX = "vision."


@dataclass(frozen=True)
class FullAttention:
    """Attention of all patches to all."""

    heads: int

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        if x.shape[-1] % self.heads:
            raise FormatError(f"{self.heads} heads do not divide the width {x.shape[-1]} of the encoder")
        heads = (self.heads, x.shape[-1] // self.heads)
        queries, keys, values = (net.linear(x, f"{place}.{each}", *heads) for each in ("wq", "wk", "wv"))
        arguments = (queries, keys, values, 0, None, 0.0, False, None)
        return net.linear(net.graph.call("custom_sdpa.default", *arguments, out=queries.sizes), f"{place}.wo")


@dataclass(frozen=True)
class Encoder:
    """Patches [1, patches, channels · patch²] of a tile -> rows [1, rows, dim] of the language model: learned
    positions, layers with a norm behind them, and a matrix that joins the patches of a block."""

    tiles: TileLayout
    channels: int
    positions: tuple[int, ...]  # the learned position of each patch, counted line by line
    layers: tuple[Part, ...]
    norm: Part

    def __call__(self, net: ImageNetwork) -> tuple[Tensor, Tensor]:
        """The input and the output."""
        tiles = self.tiles
        patches = net.graph.input(net.dtype, (1, tiles.patches, self.channels * tiles.patch**2))
        x = net.linear(patches, f"{PREFIX}patches")
        x = net.add(x, self._positions(net, x))
        for index, layer in enumerate(self.layers):
            x = layer(net, x, f"{PREFIX}layers.{index}")
        x = self.norm(net, x, f"{PREFIX}norm")
        joined = net.view(x, 1, tiles.rows, x.shape[-1] * tiles.block**2)
        return patches, net.linear(joined, f"{PREFIX}connector")

    def _positions(self, net: ImageNetwork, x: Tensor) -> Tensor:
        stored = net.weight(f"{PREFIX}positions.weight")
        if stored.shape[1:] != x.shape[-1:] or max(self.positions) >= stored.rows:
            raise FormatError(
                f"learned positions are {list(stored.shape)}, but the encoder has {max(self.positions) + 1} "
                f"positions of width {x.shape[-1]}"
            )
        chosen = np.array(self.positions)[self.tiles.order]
        return net.prepacked(net.computed(stored.read()[chosen][None]))


@dataclass(frozen=True)
class Vision:
    """The vision part of a family, by a checkpoint's whole configuration. `tiles` also takes the pixels of a
    tile's side, `processor` names the image processor (llm/images/processor.py)."""

    encoder: Callable[[dict[str, Any], TileLayout], Encoder]
    tiles: Callable[[dict[str, Any], int], TileLayout]
    processor: str


def as_matrix(place: str) -> Rule:
    """The kernel of a convolution whose steps are as wide as itself [rows, channels, height, width], as a
    matrix; vectors stay as they are."""

    def rule(_: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
        is_kernel = len(tensor.shape) == 4
        flat = tensor.rearranged(lambda array: array.reshape(len(array), -1)) if is_kernel else tensor
        return {place: flat}

    return rule
