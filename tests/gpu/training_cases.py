"""Names of training operators, and the rates of an optimiser step."""

from __future__ import annotations

LOSS = "et_vk.fused_ce.default"
WEIGHT_GRADIENT = "et_vk.linear_dW.default"
INPUT_GRADIENT = "et_vk.linear_q4gsw_backward.default"
REQUANTIZE = "et_vk.q4gsw_requant.default"
STEP = "et_vk.adamw_step.default"
RATES = (1e-2, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001)  # as at the first step
