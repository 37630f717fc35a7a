"""Running sums, products and extrema, sorted values, searches in sorted values."""

from pteron.families.order import scan, search, sort
