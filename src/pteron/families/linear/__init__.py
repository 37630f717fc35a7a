"""Matrix products."""

from pteron.families.linear import product

__all__ = ["product"]
