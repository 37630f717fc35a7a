"""What training takes: a loss, gradients of linear layers, an optimiser's step, 4-bit weights anew."""

from pteron.families.training import adamw, cross_entropy, gradients, requantize

__all__ = ["adamw", "cross_entropy", "gradients", "requantize"]
