"""Embedder: texts in, vectors of length one out, whatever its program is like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.runtime import Program

Vector = npt.NDArray[np.float32]


class Embedder(ABC):
    """A program with its tokenizer. Calls from several threads are served one after the other."""

    program: Program
    vocabulary: int  # tokens are numbers below it

    @property
    @abstractmethod
    def tokens_max(self) -> int:
        """How many tokens a text may have."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that mark its beginning and end."""

    @abstractmethod
    def _state(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """What stands for a text, [D], of any length."""

    def embed(self, ids: Sequence[int]) -> Vector:
        """The vector [D] of a text's tokens."""
        if not 0 < len(ids) <= self.tokens_max:
            raise InputError(f"the text has {len(ids)} tokens; from 1 to {self.tokens_max} are taken")
        if not 0 <= min(ids) <= max(ids) < self.vocabulary:
            raise InputError(f"tokens of a text are numbers from 0 to {self.vocabulary - 1}")
        state = self._state(ids)
        return (state / max(float(np.linalg.norm(state)), 1e-12)).astype(np.float32)

    def close(self) -> None:
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
