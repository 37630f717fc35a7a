"""Operators that exporters take out before a file is written."""

from pteron.families.elided import operators

__all__ = ["operators"]
