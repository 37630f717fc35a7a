"""WHAT AN OPERATOR IS: signatures, operands at live shapes, live integers, dispatches, the table of all."""

from pteron.ops.call import Call
from pteron.ops.dispatch import Dispatch, Indices
from pteron.ops.live import (
    AnyInt,
    LiveInt,
    LiveShape,
    bucket,
    divides,
    most,
    numel,
    parts_of,
    settled,
    typical,
)
from pteron.ops.operand import Operand, OperandSlice, Scratch, Weight
from pteron.ops.operator import OPERATORS, Kind, Operator, define, op, same_shape
from pteron.ops.requirement import RequirementError, require
from pteron.ops.target import Target

__all__ = [
    "OPERATORS",
    "AnyInt",
    "Call",
    "Dispatch",
    "Indices",
    "Kind",
    "LiveInt",
    "LiveShape",
    "Operand",
    "OperandSlice",
    "Operator",
    "RequirementError",
    "Scratch",
    "Target",
    "Weight",
    "bucket",
    "define",
    "divides",
    "most",
    "numel",
    "op",
    "parts_of",
    "require",
    "same_shape",
    "settled",
    "typical",
]
