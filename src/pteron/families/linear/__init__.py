"""Matrix products, and distances of points."""

from pteron.families.linear import distances, grouped, product
