"""What operators mean, in PyTorch at float64: the reference that their kernels are compared with.

A reference takes a node's arguments in order, without the output: floats as float64 tensors, integers as
int64, booleans as they are; live integers are plain. It gives the output, or a tuple of all. A tensor that
the operator changes in place it changes in place, too: it is given a copy. Where arithmetic is part of
what an operator means, as rounding to integers is, it is done in float32, in the order that PyTorch has.
"""

from pteron.reference import (  # noqa: F401  # registers them
    attention,
    embeddings,
    int8,
    int8_planes,
    moved,
    norms,
    numbers,
    planes,
    products,
    quantizing,
    rotary,
    training,
)
from pteron.reference.table import REFERENCES, Reference, find

__all__ = ["REFERENCES", "Reference", "find"]
