"""A configuration's rotary embedding -> ExecuTorch's parameters.

A scaled embedding divides each frequency by a factor of its own. ExecuTorch's tables take any list of such
factors, whatever rule they come from.
"""

from __future__ import annotations

import math
from typing import Any

from pteron.errors import FormatError, UnsupportedError

_ROTARY_MAX = 1 << 16


def rope_parameters(config: dict[str, Any], head_dim: int, name: str) -> dict[str, Any]:
    """From a Hugging Face configuration, in its older form (rope_theta, rope_scaling) or its newer one."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    partial = float(rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    parameters: dict[str, Any] = {"use_hf_rope": True, "rope_theta": theta}
    if partial != 1.0:
        parameters["partial_rotary_factor"] = partial
    rotary = int(head_dim * partial)
    if not 0 < rotary <= _ROTARY_MAX:
        raise FormatError(f"{name}: {rotary} rotary dimensions of a head; up to {_ROTARY_MAX} are possible")
    if kind == "linear":
        parameters["rope_scaling_short_factor"] = [float(rope["factor"])] * (rotary // 2)
    elif kind == "llama3":
        parameters["rope_scaling_short_factor"] = llama3_factors(rope, rotary, theta)
    elif kind != "default":
        raise UnsupportedError(f"{name}: rotary embeddings scaled by {kind!r}; known are linear and llama3")
    return parameters


def llama3_factors(rope: dict[str, Any], rotary: int, theta: float) -> list[float]:
    """Llama 3.1's rule: waves that fit into the original context often keep their length, those that hardly
    fit once are stretched by the whole factor, and those between by a share of it."""
    factor = float(rope["factor"])
    slow, fast = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    context = float(rope["original_max_position_embeddings"])
    factors = []
    for index in range(rotary // 2):
        frequency = theta ** (-2 * index / rotary)
        turns = context * frequency / (2 * math.pi)
        share = min(max((turns - slow) / (fast - slow), 0.0), 1.0)  # 1: kept, 0: stretched
        factors.append(1 / (share + (1 - share) / factor))
    return factors
