"""Convolutions."""

from pteron.families.convolution import convolution, follow
