"""Mixtures of experts: routing, products with chosen matrices, weighted sums."""

from pteron.families.experts import gated, mlp, products, route
