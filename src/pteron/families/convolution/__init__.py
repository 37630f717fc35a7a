"""Convolutions."""

from pteron.families.convolution import convolution, packing

__all__ = ["convolution", "packing"]
