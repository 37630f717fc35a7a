"""The operators: a folder per family, with its modules and kernels.

Importing this package registers every operator that a file may call: each family imports its own modules.
"""

from pteron.families import (
    attention,
    batched_rows,
    convolution,
    create,
    elementwise,
    experts,
    index,
    layout,
    linear,
    norm,
    order,
    pool,
    quantized,
    recurrent,
    reduce,
    resample,
    rope,
    symint,
    training,
    transformer,
)
