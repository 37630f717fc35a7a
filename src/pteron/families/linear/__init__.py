"""Matrix products."""

from pteron.families.linear import product
