"""Moving elements: views, permutations, slices, joins, padding."""

from pteron.families.layout import rearrange, views
