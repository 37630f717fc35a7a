"""What an operator sees while it is planned: tensors at their live shape, and the buffers behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType, Storage
from pteron.format.source import contents, pieces
from pteron.graph import Constant, Shape, Tensor
from pteron.ops.live import AnyInt, LiveShape, numel
from pteron.ops.requirement import RequirementError

HostArray: TypeAlias = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Slot:
    """A buffer of the arena, which tensors share over time."""

    index: int


@dataclass(frozen=True, slots=True)
class State:
    """A buffer that outlives a call: a cache or another mutated tensor, by value id."""

    id: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A read-only constant in a shape, uploaded once in the layout that its kernels read.

    Weights of equal content and layout share one buffer.
    """

    constant: Constant
    shape: Shape
    layout: str  # a name in PACKINGS,
    arguments: tuple[int | str, ...]  # and its arguments after the elements
    count: int  # elements after packing, those of `rest` included
    storage: Storage
    rest: tuple[Weight, ...] = ()  # weights that follow it in its buffer

    @property
    def bytes(self) -> int:
        return self.count * self.storage.itemsize

    def pack(self) -> HostArray:
        """The bytes to upload."""
        packed = PACKINGS[self.layout](self.constant.numpy().reshape(self.shape), *self.arguments)
        self._check_size(packed.nbytes)
        if not self.rest:
            return packed
        parts = [packed, *(weight.pack() for weight in self.rest)]
        return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])

    def pack_in_pieces(self, staging: memoryview) -> Iterator[tuple[int, HostArray]]:
        """The same in pieces: (byte offset in its buffer, a multiple of four; elements).

        A piece may be in `staging`, which the next piece overwrites.
        """
        if self.rest and any(weight.bytes % 4 for weight in (self, *self.rest)):
            yield 0, self.pack()
            return
        start = 0
        for piece in self._own_pieces(staging):
            yield start, piece
            start += piece.nbytes
        self._check_size(start)
        for weight in self.rest:
            for offset, piece in weight.pack_in_pieces(staging):
                yield start + offset, piece
            start += weight.bytes

    def _own_pieces(self, staging: memoryview) -> Iterator[HostArray]:
        pack, data, dtype = PACKINGS[self.layout], self.constant.data, self.constant.dtype.numpy
        if self.layout in _BY_ELEMENT:
            for piece in pieces(data, staging):
                yield pack(np.frombuffer(piece, dtype), *self.arguments)
        else:
            elements = np.frombuffer(contents(data, staging), dtype)
            yield pack(elements.reshape(self.shape), *self.arguments)

    def _check_size(self, packed: int) -> None:
        own = self.bytes - sum(weight.bytes for weight in self.rest)
        if packed > own or (self.rest and packed < own):
            raise ValueError(f"layout {self.layout} packs {self.shape} to {packed} bytes, not {own}")


def joined(weights: Sequence[Weight]) -> Weight:
    """Weights of one element type, one after another in one buffer."""
    first, *rest = weights
    if any(weight.storage is not first.storage for weight in rest):
        raise RequirementError("weights that share a buffer must be of one element type")
    return replace(first, count=sum(weight.count for weight in weights), rest=tuple(rest)) if rest else first


PACKINGS: dict[str, Callable[..., HostArray]] = {}
_BY_ELEMENT: set[str] = set()  # layouts that may be packed in parts: they pack elements independently


def packing(
    name: str, *, by_element: bool = False
) -> Callable[[Callable[..., HostArray]], Callable[..., HostArray]]:
    """Register a function from a constant's elements to what kernels read; `Operand.packed` names it.

    With `by_element` it must accept elements of any shape, and a part of them at a time.
    """

    def register(pack: Callable[..., HostArray]) -> Callable[..., HostArray]:
        if name in PACKINGS:
            raise ValueError(f"packing {name} is defined twice")
        PACKINGS[name] = pack
        if by_element:
            _BY_ELEMENT.add(name)
        return pack

    return register


@dataclass(frozen=True, slots=True, eq=False)
class Scratch:
    """A buffer that lives within one node, between its dispatches."""

    count: AnyInt
    storage: Storage = Storage.F32


@dataclass(frozen=True, slots=True, eq=False)
class OperandSlice:
    """A tensor from element `first` on: a kernel that binds it sees no element before."""

    of: Operand
    first: AnyInt

    @property
    def storage(self) -> Storage:
        return self.of.storage

    @property
    def start(self) -> AnyInt:
        """Where it begins, in bytes."""
        return self.first * self.of.storage.itemsize


BufferRef: TypeAlias = Slot | State | Weight


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A tensor in one plan: its live shape, its element type on the GPU, its buffer.

    Elements are row-major and contiguous at the live shape.
    """

    tensor: Tensor
    shape: LiveShape
    storage: Storage
    buffer: BufferRef | Scratch

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> AnyInt:
        return numel(self.shape)

    @property
    def strides(self) -> LiveShape:
        return contiguous_strides(self.shape)

    @property
    def has_slack(self) -> bool:
        """Whether its memory goes on after its last element (`Target.slack`)."""
        return isinstance(self.buffer, (Slot, Scratch))

    def scratch(self, shape: LiveShape | None = None) -> Operand:
        """Scratch memory of its element type, in its shape or another."""
        shape = self.shape if shape is None else shape
        return Operand(self.tensor, shape, self.storage, Scratch(numel(shape), self.storage))

    def reshaped(self, shape: LiveShape) -> Operand:
        """The same elements in another shape."""
        return Operand(self.tensor, shape, self.storage, self.buffer)

    def packed(self, layout: str, *arguments: AnyInt | str, count: AnyInt, storage: Storage) -> Weight:
        """This constant, packed as `count` elements in a layout of its operator; its sizes are pinned."""
        if not isinstance(self.buffer, Weight):
            what = f"{self} must be a constant: its operator packs it once, at load"
            advice = "; a buffer that the module writes must be read by operators on floats"
            raise RequirementError(what + advice if isinstance(self.buffer, State) else what)
        plain = tuple(each if isinstance(each, str) else int(each) for each in arguments)
        shape = tuple(map(int, self.shape))
        return Weight(self.buffer.constant, shape, layout, plain, int(count), storage)

    def part(self, dim: int, first: int, count: AnyInt) -> Weight:
        """Positions `first` to `first + count` of a dim of this constant, as a separate weight."""
        elements = self.numel // self.shape[dim] * count
        return self.packed("part", str(self.storage), dim, first, count, count=elements, storage=self.storage)

    def __str__(self) -> str:
        return f"%{self.tensor.id}:{self.dtype}{list(self.shape)}"


def compute_type(*operands: Operand) -> str:
    """The WGSL type to compute in, whatever width the operands are stored in."""
    return "f32" if any(operand.dtype.is_float for operand in operands) else "i32"


_BITS = {DType.U8: 8, DType.I8: 8, DType.I16: 16}  # of narrow integers, which are stored in 32


def changes_words(source: DType, result: DType) -> bool:
    """Whether a conversion changes 32-bit words: any number may become a boolean, and what becomes a narrow
    integer wraps round."""
    return result in (DType.BOOL, *_BITS) and source not in (result, DType.BOOL)


def wrapped(whole: str, dtype: DType) -> str:
    """The WGSL expression of an i32 as a narrow integer."""
    if dtype is DType.U8:
        return f"({whole}) & 255"
    return f"(({whole}) << {32 - _BITS[dtype]}u) >> {32 - _BITS[dtype]}u"


def contiguous_strides(shape: LiveShape) -> LiveShape:
    """Elements to step over per dim of a row-major tensor."""
    strides: list[AnyInt] = []
    step: AnyInt = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def plain_weight(constant: Constant, storage: Storage) -> Weight:
    """A constant in the order of the file, in the element type that kernels read."""
    return Weight(constant, constant.shape, "plain", (str(storage),), math.prod(constant.shape), storage)


@packing("plain", by_element=True)
def _plain(elements: HostArray, storage: str) -> HostArray:
    return elements.astype(Storage(storage).numpy, copy=False)


@packing("part")
def _part(elements: HostArray, storage: str, dim: int, first: int, count: int) -> HostArray:
    picked = elements.take(range(first, first + count), axis=dim)
    return picked.astype(Storage(storage).numpy, copy=False)
