"""Moving elements: views, permutations, slices, joins, padding."""

from pteron.families.layout import pad, rearrange, views

__all__ = ["pad", "rearrange", "views"]
