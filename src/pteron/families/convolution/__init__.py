"""Convolutions."""

from pteron.families.convolution import convolution, follow

__all__ = ["convolution", "follow"]
