"""A tensor's elements in another order without a copy: what views, permutations and selections of it show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pteron.dtypes import DType, Storage
from pteron.ops.live import AnyInt, LiveShape, numel
from pteron.ops.operand import Operand, OperandSlice, contiguous_strides

ALIGNMENT = 256  # bytes: a binding may begin at any multiple of this, on every device


@dataclass(frozen=True, slots=True, eq=False)
class Strided:
    """Element (i, j, ...) is element `first` + i · strides[0] + j · strides[1] + ... of the source."""

    source: Operand
    shape: LiveShape
    strides: LiveShape
    first: AnyInt = 0

    @classmethod
    def of(cls, operand: Operand) -> Strided:
        return cls(operand, operand.shape, operand.strides)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> AnyInt:
        return numel(self.shape)

    @property
    def dtype(self) -> DType:
        return self.source.dtype

    @property
    def storage(self) -> Storage:
        return self.source.storage

    def is_bindable(self, unit: int) -> bool:
        """Whether a kernel can bind it and read its rows, `unit` elements at a time."""
        *outer, last = self.strides
        aligned = self.first * self.storage.itemsize % ALIGNMENT == 0
        return aligned and last == 1 and all(stride % unit == 0 for stride in outer)

    def permuted(self, dims: Sequence[int]) -> Strided:
        shape, strides = (tuple(of[dim] for dim in dims) for of in (self.shape, self.strides))
        return replace(self, shape=shape, strides=strides)

    def selected(self, dim: int, index: AnyInt) -> Strided:
        """Without a dim, at one of its places."""
        at = index + self.shape[dim] if index < 0 else index
        return replace(
            self.sliced(dim, at, 1), shape=_without(self.shape, dim), strides=_without(self.strides, dim)
        )

    def sliced(self, dim: int, start: AnyInt, count: AnyInt) -> Strided:
        shape = (*self.shape[:dim], count, *self.shape[dim + 1 :])
        return replace(self, shape=shape, first=self.first + start * self.strides[dim])

    def unsqueezed(self, dim: int) -> Strided:
        """With a dim of one place more."""
        shape, strides = ((*of[:dim], new, *of[dim:]) for of, new in ((self.shape, 1), (self.strides, 0)))
        return replace(self, shape=shape, strides=strides)

    def viewed(self, shape: LiveShape) -> Strided | None:
        """The same elements in another shape, or None if no strides show them so."""
        if self.numel == 0:
            return replace(self, shape=shape, strides=contiguous_strides(shape))
        strides: list[AnyInt] = []
        runs = _runs(self.shape, self.strides)
        size, step = next(runs, (1, 1))
        for length in reversed(shape):
            if length == 1:
                strides.append(0)
                continue
            if size == 1:
                size, step = next(runs, (1, 1))
            if size % length:
                return None
            strides.append(step)
            size, step = size // length, step * length
        return replace(self, shape=shape, strides=tuple(reversed(strides)))


def source_of(x: Operand | Strided) -> Operand:
    """The tensor whose memory it is."""
    return x.source if isinstance(x, Strided) else x


def bound_of(x: Operand | Strided) -> Operand | OperandSlice:
    """What a kernel binds, from the first element on, which must be aligned."""
    return OperandSlice(x.source, x.first) if isinstance(x, Strided) and x.first else source_of(x)


def _runs(shape: LiveShape, strides: LiveShape) -> Iterator[tuple[AnyInt, AnyInt]]:
    """(elements, stride) of dims that step evenly through memory together, the last ones first."""
    size: AnyInt = 1
    step: AnyInt = 0
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length == 1:
            continue
        if size > 1 and stride == step * size:
            size *= length
            continue
        if size > 1:
            yield size, step
        size, step = length, stride
    if size > 1:
        yield size, step


def _without(of: LiveShape, dim: int) -> LiveShape:
    return of[:dim] + of[dim + 1 :]
