"""Reference implementations of operators in PyTorch at float64, for `pteron compare` and the tests.

A reference takes a node's arguments in order, without the output: floats as float64 tensors, integers as
int64, booleans as they are, live integers as plain ones. It returns the output, or a tuple of outputs. A
tensor that the operator changes in place it changes too: the caller passes a copy. Where rounding is part of
the operator, as in quantisation, it computes in float32, in PyTorch's order of operations.
"""

from pteron.reference import (  # noqa: F401  # registers them
    attention,
    elementwise,
    layout,
    products,
    quantized,
    training,
)
from pteron.reference.table import REFERENCES, Reference, find

__all__ = ["REFERENCES", "Reference", "find"]
