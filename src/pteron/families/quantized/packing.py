"""4-bit weights as kernels read them."""

from __future__ import annotations

from pteron.ops import Operand, Weight


def packed_words(weights: Operand) -> Weight:
    """A matrix of packed nibbles as 32-bit words."""
    return weights.packed("words", lambda constant: constant.bytes())
