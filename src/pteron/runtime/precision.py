"""How exactly products with 4-bit weights take their activations: speed, or the last bits."""

from __future__ import annotations

import os

from pteron.errors import InputError
from pteron.ops.target import DIGITS, Target

DIGITS_VARIABLE = "PTERON_DIGITS"


def chosen_digits(wanted: int | None) -> int:
    """The digits of 8 bits that activations are split into: those wanted, or those that PTERON_DIGITS names,
    or as many as are as good as f32."""
    named = os.environ.get(DIGITS_VARIABLE, "").strip()
    if wanted is None and not named:
        return Target().digits
    allowed = {str(digits): digits for digits in DIGITS}
    asked = named if wanted is None else str(wanted)
    if asked not in allowed:
        source = f"{DIGITS_VARIABLE}={named!r}" if wanted is None else f"digits={wanted!r}"
        raise InputError(f"{source}: activations are split into {' or '.join(allowed)} digits")
    return allowed[asked]
