"""Tensors made from numbers."""

from pteron.families.create import fill
