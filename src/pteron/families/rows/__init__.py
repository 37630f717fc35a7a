"""Rows of different sequences in one tensor: where each belongs, and what of a model looks at that."""

from pteron.families.rows import attend, place, rope

__all__ = ["attend", "place", "rope"]
