"""Convolutions."""

from pteron.families.convolution import convolution, follow, packing

__all__ = ["convolution", "follow", "packing"]
