"""A language model's graph over the next tokens of one sequence -> the same over those of many sequences."""

from pteron.passes.batched.graph import BatchedGraph, batch, consecutive_rows

__all__ = ["BatchedGraph", "batch", "consecutive_rows"]
