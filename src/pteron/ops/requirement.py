"""What an operator demands of its operands."""

from __future__ import annotations


class RequirementError(Exception):
    """An operator cannot take these operands; planning adds the node's name."""


def problem_of(error: Exception) -> str:
    """What is wrong with the operands, in the words of whatever an operator's function raised.

    Families write shape rules and choices of kernels for graphs that make sense; a file may hold any values.
    A list that is shorter than a rule expects, or a divisor of 0, ends the rule with an error of Python's.
    Whoever knows the node makes of it the error that a requirement would have been.
    """
    return str(error) if isinstance(error, RequirementError) else f"{type(error).__name__}: {error}"


def require(condition: bool, message: str, *operands: object) -> None:
    """Raise a RequirementError that shows the operands, unless the condition holds."""
    if not condition:
        shown = ", ".join(map(str, operands))
        raise RequirementError(f"{message}; got {shown}" if operands else message)
