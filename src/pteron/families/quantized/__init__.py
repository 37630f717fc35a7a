"""Quantised weights and activations."""

from pteron.families.quantized import (
    affine,
    conv_q8,
    elements_q8,
    embedding_q4,
    linear_q4,
    linear_q8,
    linear_weights,
    qparams,
)

__all__ = [
    "affine",
    "conv_q8",
    "elements_q8",
    "embedding_q4",
    "linear_q4",
    "linear_q8",
    "linear_weights",
    "qparams",
]
