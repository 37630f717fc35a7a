"""What an operator demands of its operands."""

from __future__ import annotations


class RequirementError(Exception):
    """An operator cannot take these operands; planning adds the node's name."""


def require(condition: bool, message: str, *operands: object) -> None:
    """Raise a RequirementError that shows the operands, unless the condition holds."""
    if not condition:
        shown = ", ".join(map(str, operands))
        raise RequirementError(f"{message}; got {shown}" if operands else message)
