"""Quantised weights and activations."""

from pteron.families.quantized import embedding_q4, linear_q4, qparams

__all__ = ["embedding_q4", "linear_q4", "qparams"]
