"""Causal convolutions over a few tokens, each channel on its own, as LFM2 and Mamba-2 have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.families.recurrent.recurrence import Sequences, recurrent
from pteron.ops import Dispatch, LiveShape, Operand, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _shape(
    x: Operand, weight: Operand, bias: Operand | None, silu: bool, state: Operand, *_: object
) -> LiveShape:
    require(x.rank >= 2 and x.numel == x.shape[-2] * x.shape[-1], "x must be [1, steps, channels]", x)
    fits = weight.rank == 2 and weight.shape[0] == x.shape[-1] and weight.shape[1] > 1
    require(fits, "weight must be [channels, taps], with two taps at least", weight, x)
    require(
        bias is None or bias.shape == weight.shape[:1], "bias must have a value per channel", weight, bias
    )
    channels, taps = weight.shape
    require(state.shape[1:] == (taps - 1, channels), "state must be [1, taps - 1, channels]", state, weight)
    return x.shape


@recurrent("pteron.short_conv", "x weight bias? silu:bool -> out", shape=_shape)
def short_conv(
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    silu: bool,
    state: Operand,
    sequences: Sequences,
    out: Operand,
) -> Iterator[Dispatch]:
    """out[t, c] = bias[c] + Σ weight[c, j] · x[t + j - taps + 1, c] over taps j, then SiLU if `silu`. The
    state has the inputs before the first step."""
    steps, channels = x.shape[-2:]
    sequences.check(state, steps)
    if x.numel == 0:
        return
    is_step = steps == 1 or sequences.places is not None
    sizes = {"TAPS": weight.shape[1], "steps": steps, "channels": channels}
    common: dict[str, Any] = {"x": x, **sizes, **sequences.arguments(state)}
    yield Dispatch(
        kernel("short_conv"),
        **common,
        IS_STEP=is_step,
        IS_SILU=silu,
        weight=weight,
        bias=bias,
        out=out,
        threads=x.numel,
    )
    if not is_step:
        yield Dispatch(kernel("short_conv_state"), **common, threads=channels)
