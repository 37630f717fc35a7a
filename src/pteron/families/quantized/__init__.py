"""Quantised weights and activations. docs/kernels-quantized.md lists which kernel runs when."""

from pteron.families.quantized import (
    affine,
    elements_q8,
    embedding_q4,
    fuse,
    grouped_q8,
    join,
    layers_q8,
    linear_q4,
    products,
    qparams,
)
