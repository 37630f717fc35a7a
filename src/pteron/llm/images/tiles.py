"""Tiles: the squares that an image is cut into, and the order of a tile's patches.

A vision encoder reads patches, and some models then join blocks of neighbours into one row. Here the patches
of a block follow one another, so that joining them is a view. An encoder that adds positions to its patches
computes the same in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class TileLayout:
    """Tiles of `size` x `size` pixels, with patches of `patch` x `patch`. Blocks of `block` x `block` patches
    become one row of the language model."""

    size: int
    patch: int
    block: int = 1

    def __post_init__(self) -> None:
        if min(self.size, self.patch, self.block) < 1 or self.side % self.block or not self.side:
            raise UnsupportedError(
                f"images of {self.size} pixels with patches of {self.patch} have {self.side} patches a side, "
                f"which blocks of {self.block} do not divide"
            )

    @property
    def side(self) -> int:
        """Patches along a side. Pixels beyond the last are not used."""
        return self.size // self.patch

    @property
    def patches(self) -> int:
        return self.side**2

    @property
    def rows(self) -> int:
        """Rows of the language model for one tile."""
        return (self.side // self.block) ** 2

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The number of each patch, counted line by line."""
        numbers = np.arange(self.patches).reshape(self.side, self.side)
        blocks = self.side // self.block
        split = numbers.reshape(blocks, self.block, blocks, self.block)
        return split.swapaxes(1, 2).reshape(-1)

    def cut(self, tile: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A tile [size, size, channels] as patches [1, patches, channels · patch²], channel by channel."""
        used, count = self.side * self.patch, self.side // self.block
        split = tile[:used, :used].reshape(count, self.block, self.patch, count, self.block, self.patch, -1)
        # block's line, block, patch's line, patch, channel, pixel's line, pixel
        return split.transpose(0, 3, 1, 4, 6, 2, 5).reshape(1, self.patches, -1)
