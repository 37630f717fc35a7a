"""Quantised weights and activations."""

from pteron.families.quantized import affine, embedding_q4, linear_q4, qparams

__all__ = ["affine", "embedding_q4", "linear_q4", "qparams"]
