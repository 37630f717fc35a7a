"""Tensors of GGUF files, and blocks of its quantised types enter; integers with a scale and perhaps a minimum
per group leave.

    weight = scale · integer + minimum

The types of `BLOCKS` are exact in this form. A K type's scale is its block's scale times that of the group,
which float32 holds exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, UnsupportedError
from pteron.format.gguf import TensorInfo
from pteron.format.source import FileBytes, contents
from pteron.format.stored_tensor import Array, GroupedRows, Groups, StoredTensor

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int8]
Unpacked: TypeAlias = tuple[npt.NDArray[np.integer], Array, Array | None]  # integers, scales, minima

# Values of 4-bit codes.
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_MXFP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # doubled


@dataclass(frozen=True)
class BlockType:
    """`unpack` turns blocks [count, bytes] into integers [count, columns] and scales [count, groups]."""

    unpack: Callable[[Bytes], Unpacked]
    group: int = 32
    has_minima: bool = False


def _float(blocks: Bytes, at: int) -> Array:
    """The f16 number at a byte of each block."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _codes(packed: Bytes, bits: int, span: int) -> Bytes:
    """Codes of a few bits: those in the lowest bits of `span` bytes, then those in the next higher bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = packed.reshape(len(packed), -1, 1, span) >> shifts[:, None]
    return (fields & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)


def _centered(codes: Bytes, zero: int) -> Integers:
    return codes.view(np.int8) - np.int8(zero)


def _five_bits(blocks: Bytes, at: int) -> Bytes:
    """Codes whose highest bits come first, in order, then four bits of each."""
    high = np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")
    return _codes(blocks[:, at + 4 :], 4, 16) | high << np.uint8(4)


def _mxfp4(blocks: Bytes) -> Unpacked:
    exponent = blocks[:, :1].astype(np.uint32)  # of twice the scale; the least two are subnormal numbers
    bits = np.where(exponent < 2, np.uint32(1 << 21) << exponent, np.maximum(exponent, 1) - 1 << 23)
    scales = bits.astype(np.uint32).view(np.float32)
    return np.array(_MXFP4, np.int8)[_codes(blocks[:, 1:], 4, 16)], scales, None


def _q2_k(blocks: Bytes) -> Unpacked:
    factors = blocks[:, :16]
    scales, minima = _float(blocks, 80) * (factors & 15), -_float(blocks, 82) * (factors >> 4)
    return _codes(blocks[:, 16:80], 2, 32), scales, minima


def _q3_k(blocks: Bytes) -> Unpacked:
    low, high = _codes(blocks[:, 96:104], 4, 8), _codes(blocks[:, 104:108], 2, 4)
    scales = _float(blocks, 108) * _centered(low | high << np.uint8(4), 32)
    codes = _codes(blocks[:, 32:96], 2, 32) | _codes(blocks[:, :32], 1, 32) << np.uint8(2)
    return _centered(codes, 4), scales, None


def _group_factors(blocks: Bytes) -> tuple[Array, Array]:
    """Scales and minima of Q4_K and Q5_K: eight pairs of 6-bit factors in twelve bytes. Those of the last
    four groups have their highest two bits beside the factors of the first four."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, third & 15 | first >> 2 & 48], 1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 2 & 48], 1)
    return _float(blocks, 0) * scales, -_float(blocks, 2) * minima


def _q5_k(blocks: Bytes) -> Unpacked:
    high = _codes(blocks[:, 16:48], 1, 32) << np.uint8(4)
    return _codes(blocks[:, 48:], 4, 32) | high, *_group_factors(blocks)


def _q6_k(blocks: Bytes) -> Unpacked:
    codes = _codes(blocks[:, :128], 4, 64) | _codes(blocks[:, 128:192], 2, 32) << np.uint8(4)
    scales = _float(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return _centered(codes, 32), scales, None


def _iq4_xs(blocks: Bytes) -> Unpacked:
    low, high = _codes(blocks[:, 4:8], 4, 1), _codes(blocks[:, 2:4], 2, 1)
    scales = _float(blocks, 0) * _centered(low | high << np.uint8(4), 32)
    return np.array(_IQ4, np.int8)[_codes(blocks[:, 8:], 4, 16)], scales, None


BLOCKS = {
    "Q8_0": BlockType(lambda blocks: (blocks[:, 2:].view(np.int8), _float(blocks, 0), None)),
    "Q4_0": BlockType(lambda blocks: (_centered(_codes(blocks[:, 2:], 4, 16), 8), _float(blocks, 0), None)),
    "Q4_1": BlockType(
        lambda blocks: (_codes(blocks[:, 4:], 4, 16), _float(blocks, 0), _float(blocks, 2)), has_minima=True
    ),
    "Q5_0": BlockType(lambda blocks: (_centered(_five_bits(blocks, 2), 16), _float(blocks, 0), None)),
    "Q5_1": BlockType(
        lambda blocks: (_five_bits(blocks, 4), _float(blocks, 0), _float(blocks, 2)), has_minima=True
    ),
    "IQ4_NL": BlockType(
        lambda blocks: (np.array(_IQ4, np.int8)[_codes(blocks[:, 2:], 4, 16)], _float(blocks, 0), None)
    ),
    "IQ4_XS": BlockType(_iq4_xs),
    "MXFP4": BlockType(_mxfp4),
    "Q2_K": BlockType(_q2_k, 16, has_minima=True),
    "Q3_K": BlockType(_q3_k, 16),
    "Q4_K": BlockType(
        lambda blocks: (_codes(blocks[:, 16:], 4, 32), *_group_factors(blocks)), has_minima=True
    ),
    "Q5_K": BlockType(_q5_k, has_minima=True),
    "Q6_K": BlockType(_q6_k, 16),
}


# Tensors ----------------------------------------------------------------------------------------

# A size of groups, and the rounding to it of types without integers in groups.
Others: TypeAlias = tuple[int, Callable[[Array, int], Groups]]


def read_tensor(
    library: Any, info: TensorInfo, file: FileBytes, others: Others | None = None
) -> StoredTensor:
    """A tensor of a mapped file; `library` is the package gguf."""
    try:
        kind = library.GGMLQuantizationType(info.type)
    except ValueError:
        raise UnsupportedError(f"{file.name}: tensor {info.name} has the unknown type {info.type}") from None
    shape, (block, block_bytes) = info.shape, library.GGML_QUANT_SIZES[kind]
    columns = shape[-1] if shape else 1
    row_bytes = prod(shape[1:-1]) * (columns // block) * block_bytes if len(shape) > 1 else block_bytes
    size = prod(shape) // block * block_bytes
    if columns % block:
        raise FormatError(
            f"{file.name} is damaged: tensor {info.name} of {list(shape)} {kind.name}, whose rows are no "
            f"multiples of {block}"
        )
    if info.offset + size > len(file.view):
        raise FormatError(
            f"{file.name} is incomplete: tensor {info.name} ends at byte {info.offset + size}, but the file "
            f"has {len(file.view)} bytes; download it again"
        )
    view = file.view[info.offset : info.offset + size]

    def read_rows(start: int, stop: int) -> Array:
        if len(shape) < 2:  # blocks may cross elements: read it all
            return _dequantized(library, contents(view), kind)[start:stop]
        part = contents(view[start * row_bytes : stop * row_bytes])
        return _dequantized(library, part, kind).reshape(-1, *shape[1:])

    def read_groups(start: int, stop: int) -> Groups:
        part = contents(view[start * row_bytes : stop * row_bytes])
        blocks = np.frombuffer(part, np.uint8).reshape(-1, block_bytes)
        integers, scales, minima = BLOCKS[kind.name].unpack(blocks)
        found = Groups(integers.astype(np.int8, copy=False), scales, minima)
        leading = (stop - start, *shape[1:-1])
        return found.each(lambda array: array.reshape(*leading, array.shape[1] * columns // block))

    groups = None
    if block > 1 and len(shape) > 1:
        if known := BLOCKS.get(kind.name):
            groups = GroupedRows(known.group, known.has_minima, read_groups)
        elif others:
            group, quantize = others
            groups = GroupedRows(group, False, lambda start, stop: quantize(read_rows(start, stop), group))
    return StoredTensor(shape, read_rows, groups)


def _dequantized(library: Any, data: memoryview, kind: Any) -> Array:
    types = library.GGMLQuantizationType
    plain = {types.F64: "<f8", types.F32: "<f4", types.F16: "<f2"}
    if kind in plain:
        return np.frombuffer(data, plain[kind]).astype(np.float32, copy=False)
    try:  # as one row: the library goes through rows in Python
        return np.asarray(library.dequantize(np.frombuffer(data, np.uint8)[None], kind)[0], np.float32)
    except NotImplementedError:
        raise UnsupportedError(f"tensors of type {kind.name} cannot be dequantised") from None
