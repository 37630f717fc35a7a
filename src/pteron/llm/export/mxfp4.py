"""MXFP4 tensors of gpt-oss: blocks of 32 numbers of 4 bits with a common power of two.

`<name>_blocks` [matrices, rows, blocks, 16 bytes] and `<name>_scales` [matrices, rows, blocks] enter;
`<name>_blocks` [matrices, rows, columns] leaves, also as integers in groups. Unquantised checkpoints have
`<name>` [matrices, columns, rows] instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pteron.errors import UnsupportedError
from pteron.format.safetensors import BytesTensor
from pteron.format.stored_tensor import Array, GroupedRows, Groups, StoredTensor

_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
_BLOCK_BYTES, _BIAS = 16, 127 + 1  # numbers are doubled


def with_mxfp4(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors with pairs of blocks and scales as one. Other tensors of bytes are refused."""
    found = dict(tensors)
    for name, blocks in tensors.items():
        scales = tensors.get(f"{name.removesuffix('_blocks')}_scales")
        if not name.endswith("_blocks") or not isinstance(scales, BytesTensor):
            continue
        if blocks.shape == (*scales.shape, _BLOCK_BYTES) and len(scales.shape) == 3:
            del found[f"{name.removesuffix('_blocks')}_scales"]
            found[name] = _matrices(blocks, scales)
    for name, tensor in found.items():
        if isinstance(tensor, BytesTensor):
            raise UnsupportedError(f"tensor {name} has element type U8, which is known only of MXFP4 tensors")
    return found


def _matrices(blocks: StoredTensor, scales: StoredTensor) -> StoredTensor:
    count, rows, groups = scales.shape
    shape = (count, rows, 2 * _BLOCK_BYTES * groups)

    def read_groups(start: int, stop: int) -> Groups:
        packed = blocks.read_rows(start, stop).astype(np.uint8)
        integers = np.stack([_DOUBLED[packed & 15], _DOUBLED[packed >> 4]], -1)
        powers = scales.read_rows(start, stop).astype(np.int32) - _BIAS
        return Groups(integers.reshape(-1, *shape[1:]), np.ldexp(np.float32(1), powers))

    def read_rows(start: int, stop: int) -> Array:
        found = read_groups(start, stop)
        return found.integers.astype(np.float32) * np.repeat(found.scales, 2 * _BLOCK_BYTES, -1)

    return StoredTensor(shape, read_rows, GroupedRows(2 * _BLOCK_BYTES, False, read_groups))
