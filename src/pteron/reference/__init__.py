"""Reference implementations of operators in PyTorch at float64, for `pteron compare` and the tests.

A reference takes a node's arguments in order, without the output: floats as float64 tensors, integers as
int64, booleans as they are, live integers as plain ones. It returns the output, or a tuple of outputs. It
changes the tensors that the operator changes in place: the caller passes copies. Where rounding is part of
the operator, as in quantisation, it computes in float32, in PyTorch's order of operations.
"""

from pteron.reference import (  # noqa: F401  # register
    attention,
    elementwise,
    experts,
    products,
    quantized,
    recurrent,
)
from pteron.reference.table import find

__all__ = ["find"]
