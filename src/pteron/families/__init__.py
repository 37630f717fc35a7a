"""THE OPERATORS: one family a folder, its modules and kernels side by side.

Importing this package registers every operator that a file may call: each family imports its own modules.
"""

from pteron.families import (
    attention,
    convolution,
    create,
    elementwise,
    elided,
    index,
    layout,
    linear,
    norm,
    pool,
    quantized,
    reduce,
    resample,
    rope,
    rows,
    symint,
    training,
    transformer,
)

__all__ = [
    "attention",
    "convolution",
    "create",
    "elementwise",
    "elided",
    "index",
    "layout",
    "linear",
    "norm",
    "pool",
    "quantized",
    "reduce",
    "resample",
    "rope",
    "rows",
    "symint",
    "training",
    "transformer",
]
