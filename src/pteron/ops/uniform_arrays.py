"""Tensors as uniform arrays, the fastest loads on software adapters: how their dims are divided."""

from __future__ import annotations

from dataclasses import dataclass

ROOM_MIN = 64  # vec4s of an array


@dataclass(frozen=True, slots=True)
class Cut:
    """A dim in equal pieces: a launch takes `arrays` of them, one in each of its arrays. The last pieces may
    end past the dim, or begin there."""

    total: int
    piece: int
    arrays: int = 1

    @classmethod
    def of(cls, total: int, most: int, arrays: int = 1) -> Cut:
        """With as few launches as pieces of at most `most` allow."""
        launches = -(-total // (arrays * most))
        return cls(total, -(-total // (arrays * launches)), arrays)

    @property
    def launches(self) -> int:
        return len(self.firsts)

    @property
    def firsts(self) -> range:
        """Where the launches begin."""
        return range(0, self.total, self.arrays * self.piece)

    def places(self, first: int) -> range:
        """Where the pieces of a launch begin."""
        return range(first, first + self.arrays * self.piece, self.piece)


def room(quads: int) -> int:
    """Vec4s of an array for this number of them: a power of two, so that few kernels are compiled."""
    return max(ROOM_MIN, 1 << (quads - 1).bit_length())
