"""Scaled dot-product attention."""

from pteron.families.attention import sdpa

__all__ = ["sdpa"]
