"""Element by element: one tensor, or several with broadcasting."""

from pteron.families.elementwise import binary, gate, unary

__all__ = ["binary", "gate", "unary"]
