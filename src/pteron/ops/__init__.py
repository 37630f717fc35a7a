"""WHAT AN OPERATOR MEANS: signatures, shape rules, checks and dispatches, one family a module.

Importing this package registers every operator.
"""

from pteron.ops.dispatch import Dispatch
from pteron.ops.operand import Operand, RequirementError, Scratch, Weight
from pteron.ops.registry import OPERATORS, Operator, Target, define, op, require

# The families come after what they are made of; being imported registers them.
from pteron.ops import (  # noqa: F401  # isort: skip
    attention,
    create,
    elementwise,
    embedding,
    fusion,
    layout,
    linear,
    norm,
    pad,
    quantized,
    reduce,
    rope,
    sample,
    scalars,
    softmax,
)

__all__ = [
    "OPERATORS",
    "Dispatch",
    "Operand",
    "Operator",
    "RequirementError",
    "Scratch",
    "Target",
    "Weight",
    "define",
    "op",
    "require",
]
