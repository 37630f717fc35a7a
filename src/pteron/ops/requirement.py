"""Requirements of operators on their operands."""

from __future__ import annotations

from pteron.wgsl import LIVE


class RequirementError(Exception):
    """An operator cannot take these operands; the planner adds the node's name."""


def problem_of(error: Exception) -> str:
    """The message of an error that an operator's function raised.

    Shape rules and kernel choices are written for valid graphs, but a file may hold any values: a short list
    or a divisor of 0 raises a Python error. The caller, which knows the node, reports it like a failed
    requirement."""
    message = str(error) if isinstance(error, RequirementError) else f"{type(error).__name__}: {error}"
    return message.replace(LIVE, "")


def require(condition: bool, message: str, *operands: object) -> None:
    """Raise a RequirementError that shows the operands, unless the condition holds."""
    if not condition:
        shown = ", ".join(map(str, operands))
        raise RequirementError(f"{message}; got {shown}" if operands else message)
