"""Normalisation: of rows, and of channels by statistics of their own."""

from pteron.families.norm import batch_norm, norm

__all__ = ["batch_norm", "norm"]
