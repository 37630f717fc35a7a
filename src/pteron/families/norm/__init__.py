"""Normalisation of rows."""

from pteron.families.norm import norm

__all__ = ["norm"]
