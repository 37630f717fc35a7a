"""Tensors made from numbers."""

from pteron.families.create import fill

__all__ = ["fill"]
