"""MXFP4 tensors of gpt-oss: blocks of 32 numbers of 4 bits with a common power of two.

`<name>_blocks` [matrices, rows, blocks, 16 bytes] and `<name>_scales` [matrices, rows, blocks] enter;
`<name>` [matrices, columns, rows] leaves, in the layout of unquantised checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pteron.errors import UnsupportedError
from pteron.llm.build.stored_tensor import Array, StoredTensor
from pteron.llm.export.safetensors_file import BytesTensor

_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_NUMBERS = np.array([*_POSITIVE, *(-number for number in _POSITIVE)], np.float32)
_BLOCK_BYTES, _BIAS = 16, 127


def with_mxfp4(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors with pairs of blocks and scales as one. Other tensors of bytes are refused."""
    found = dict(tensors)
    for name, blocks in tensors.items():
        scales = tensors.get(f"{name.removesuffix('_blocks')}_scales")
        if not name.endswith("_blocks") or not isinstance(scales, BytesTensor):
            continue
        if blocks.shape == (*scales.shape, _BLOCK_BYTES) and len(scales.shape) == 3:
            del found[name], found[f"{name.removesuffix('_blocks')}_scales"]
            found[name.removesuffix("_blocks")] = _matrices(blocks, scales)
    for name, tensor in found.items():
        if isinstance(tensor, BytesTensor):
            raise UnsupportedError(f"tensor {name} has element type U8, which is known only of MXFP4 tensors")
    return found


def _matrices(blocks: StoredTensor, scales: StoredTensor) -> StoredTensor:
    count, rows, groups = scales.shape

    def read_rows(start: int, stop: int) -> Array:
        packed = blocks.read_rows(start, stop).astype(np.uint8)
        numbers = np.stack([_NUMBERS[packed & 15], _NUMBERS[packed >> 4]], -1)
        powers = scales.read_rows(start, stop).astype(np.int32) - _BIAS
        values = np.ldexp(numbers, powers[..., None, None])
        return np.asarray(values.reshape(stop - start, rows, -1).swapaxes(1, 2), np.float32)

    return StoredTensor((count, 2 * _BLOCK_BYTES * groups, rows), read_rows)
