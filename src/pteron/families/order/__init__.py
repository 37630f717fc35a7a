"""Running sums and products, sorted values."""

from pteron.families.order import scan, sort
