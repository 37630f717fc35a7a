"""A language model's graph over the next tokens of one sequence -> the same over those of many sequences."""

from pteron.passes.batched.graph import BatchedGraph, batch

__all__ = ["BatchedGraph", "batch"]
