"""KV caches in 8 bits: an element is scale · code, with codes from -127 to 127. Each block of 32 neighbouring
elements of a head has an f32 scale, chosen by the largest of them when the block is written.

Such a cache is [batch, capacity, heads, words] of 32-bit words. A block is its scale, then a word for each
four codes, so a head of 64 elements takes 18 words. Kernels read it by lib/keys.wgsl and
lib/values.wgsl; write_int8.wgsl writes it.
"""

from __future__ import annotations

from pteron.dtypes import DType
from pteron.graph import Tensor
from pteron.ops import AnyInt, Operand
from pteron.ops.strided import Strided

BLOCK = 32  # elements that share a scale


def is_int8(cache: Operand | Strided | Tensor) -> bool:
    return cache.dtype is DType.I32


def words_of(width: int) -> int:
    """The words of a head whose width is a multiple of four."""
    return width // 4 + -(-width // BLOCK)


def head_width(cache: Operand | Strided | Tensor) -> AnyInt:
    """The elements of a head in a cache of any type."""
    stored = (cache.shape_max if isinstance(cache, Tensor) else cache.shape)[3]
    return (stored - -(-stored // (BLOCK // 4 + 1))) * 4 if is_int8(cache) else stored
