"""Graphs that begin with the embedding of tokens."""

from __future__ import annotations

import numpy as np
from join_cases import (
    Calls,
    Layers,
    random,
    same_numbers,  # noqa: F401  # a fixture
)
from small_graphs import Array

from pteron.dtypes import DType
from pteron.graph import Graph, Tensor

SIZE = 37  # rows of the table
STEPS = 3
LIVE = (STEPS, 1, 2)


class Tokens(Layers):
    """A model's first layers."""

    def __init__(
        self, dtype: DType = DType.F32, *, width: int = 96, group: int = 32, linear: bool = True
    ) -> None:
        super().__init__(dtype)
        self.table = random.integers(0, 256, (SIZE, width // 2)).astype(np.uint8)
        self.table_scales = random.uniform(0.5, 2, (SIZE, -(-width // group))).astype(np.float32)
        self.width, self.group, self.linear = width, group, linear
        tokens = self.tensor(1, STEPS, dtype=DType.I32)
        self.inputs.append(tokens)
        self.x = self.embedding(tokens)

    def embedding(self, tokens: Tensor) -> Tensor:
        factors = self.given(self.table), self.given(self.table_scales)
        arguments = *factors, self.group, tokens, self.linear
        return self.made("et_vk.embedding_q4gsw.default", *arguments, shape=(1, STEPS, self.width))

    def rows(self) -> Array:
        """The table in float64."""
        nibbles = [self.table & 15, self.table >> 4]
        pairs = nibbles if self.linear else nibbles[::-1]
        values = np.stack(pairs, -1).reshape(SIZE, self.width).astype(np.float64) - 8
        scales = np.repeat(self.table_scales, self.group, 1)[:, : self.width]
        return values * scales


def tokens_of(live: tuple[int, ...] = LIVE) -> Calls:
    return [[random.integers(0, SIZE, (1, steps)).astype(np.int32)] for steps in live]


def first_layer(layers: Tokens, columns: int = 64) -> Graph:
    """A norm, a product, another back, and the rows of the embedding added to that."""
    made = layers.product(layers.norm(layers.x), columns)
    return layers.ending(layers.sum(layers.product(made, layers.width), layers.x))
