"""Matrices in GGUF's types: blocks of bytes that follow from a tensor's name, and what they mean.

Files may be mixed: "Q4_K+Q6_K+F32" has a type for most matrices, one for those of `SECOND` and one for those
of `THIRD`.
"""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from checkpoints import values

Bytes = npt.NDArray[np.uint8]

# Types that `gguf` cannot quantise: where a block has its f16 scales and their usual values. The other bytes
# are random.
SCALES: dict[str, dict[int, float]] = {
    "Q2_K": {80: 3e-3, 82: 4.5e-3},
    "Q3_K": {108: 2e-3},
    "Q4_K": {0: 2e-4, 2: 1.5e-3},
    "Q5_K": {0: 1e-4, 2: 1.5e-3},
    "Q6_K": {208: 6e-5},
    "IQ4_NL": {0: 1e-3},
    "IQ4_XS": {0: 6e-5},
}
TYPES = ("F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", *SCALES)
# Names of matrices that have other types than most in mixed files, as llama.cpp chooses them.
SECOND, THIRD = re.compile(r"v_proj|down_proj|\.w2\.|lm_head|embed"), re.compile(r"o_proj|dense\.")


def type_of(name: str, kind: str, columns: int = 0) -> str:
    """The type of a matrix in a file of a kind: floats if its rows are not whole blocks."""
    import gguf

    most, second, third, *_ = [*kind.split("+"), kind.split("+")[0], kind.split("+")[0]]
    found = second if SECOND.search(name) else third if THIRD.search(name) else most
    return "F32" if columns % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[found]][0] else found


def is_quantized(name: str, shape: tuple[int, ...]) -> bool:
    """Matrices, but for those that choose experts."""
    return len(shape) > 1 and not name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight"))


def blocks(name: str, shape: tuple[int, ...], kind: str) -> Bytes:
    """The bytes of a matrix, [..., rows, bytes of a row]."""
    import gguf

    kind = type_of(name, kind)
    type = gguf.GGMLQuantizationType[kind]
    if kind not in SCALES:
        made = gguf.quantize(values(name, shape), type)
        return np.ascontiguousarray(made).view(np.uint8).reshape(*shape[:-1], -1)
    size, bytes = gguf.GGML_QUANT_SIZES[type]
    random = np.random.default_rng(crc32(name.encode()))
    made = random.integers(0, 256, (*shape[:-1], shape[-1] // size, bytes), np.uint8)
    factors = (random.choice([-1, 1], made.shape[:-1]) * random.uniform(0.5, 1.5, made.shape[:-1]))[..., None]
    for place, scale in SCALES[kind].items():
        made[..., place : place + 2] = (scale * factors).astype(np.float16).view(np.uint8)
    return made.reshape(*shape[:-1], -1)


def dequantized_values(kind: str, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """The values of a tensor whose matrices are in a type."""
    import gguf

    kind = type_of(name, kind, shape[-1] if shape else 0)
    if kind == "F32" or not is_quantized(name, shape):
        return values(name, shape)
    type: Any = gguf.GGMLQuantizationType[kind]
    rows = blocks(name, shape, kind)
    found = gguf.dequantize(rows.reshape(-1, rows.shape[-1]), type)
    return np.asarray(found, np.float32).reshape(shape)
