"""Reductions over dims, and softmax."""

from pteron.families.reduce import reduce, softmax
