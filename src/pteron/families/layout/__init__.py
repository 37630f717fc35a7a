"""Moving elements: views, permutations, slices, joins, padding."""
