"""Quantised weights and activations."""

from pteron.families.quantized import (
    conv_q8,
    depthwise_q8,
    elements_q8,
    embedding_q4,
    fuse,
    fused_q4,
    granularity,
    join,
    linear_q4,
    linear_q8,
    linear_weights,
    peaks,
    qparams,
)

__all__ = [
    "conv_q8",
    "depthwise_q8",
    "elements_q8",
    "embedding_q4",
    "fuse",
    "fused_q4",
    "granularity",
    "join",
    "linear_q4",
    "linear_q8",
    "linear_weights",
    "peaks",
    "qparams",
]
