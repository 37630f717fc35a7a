"""Arguments and oracles of operators with a recurrent state."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from arguments import Symbol, tensor, weight

from pteron.reference import find

CONV, DELTA, SCAN = "pteron.short_conv", "pteron.gated_delta_rule", "pteron.ssm_scan"
SLOTS = 7
# (position, slot) of rows: a first step, slots in any order, a padding row.
PLACES = np.array([[4, 3], [0, 0], [22, 6], [-1, -1], [11, 2], [1, 5]], np.int32)
# A prompt, steps, a chunk, a step; then another sequence, which starts anew.
LIVE = {"S": (5, 1, 1, 7, 1, 2, 11, 1), "p": (0, 5, 6, 7, 14, 0, 2, 13)}


class OneSequence:
    """The oracle: the reference, with a state that it keeps from call to call."""

    def __init__(self, name: str) -> None:
        self.reference = find(f"{name}.default")
        self.state: Any = None

    def __call__(self, *arguments: Any) -> Any:
        assert self.reference is not None
        *inputs, state, start = arguments
        self.state = state.nan_to_num() if self.state is None else self.state
        return self.reference(*inputs, self.state, start)


class Rows:
    """The oracle: each row alone, over the state of its slot. The result of a padding row is undefined."""

    def __init__(self, name: str, by_row: int) -> None:
        self.reference = find(f"{name}.default")
        self.by_row = by_row  # so many of the first inputs have rows
        self.states: Any = None

    def __call__(self, *arguments: Any) -> Any:
        assert self.reference is not None
        *inputs, states, places = arguments
        self.states = states.clone() if self.states is None else self.states
        results = []
        for row, (position, slot) in enumerate(places.tolist()):
            state = self.states[max(slot, 0)][None]
            given = [value[:, row : row + 1] for value in inputs[: self.by_row]]
            state = state.clone() if slot < 0 else state
            results.append(self.reference(*given, *inputs[self.by_row :], state, max(position, 0)))
        return torch.cat(results, 1)


def conv(
    steps: int | str, channels: int, taps: int, *, bias: bool = False, silu: bool = False
) -> tuple[Any, ...]:
    weights = weight(channels, taps), weight(channels) if bias else None
    return tensor(1, steps, channels), *weights, silu


def conv_state(slots: int, channels: int, taps: int, **options: Any) -> Any:
    return weight(slots, taps - 1, channels, **options)


def delta(steps: int | str, heads: int, key_heads: int, key_width: int, width: int) -> tuple[Any, ...]:
    """Keys are short, so that states stay small."""
    long = 1 / key_width**0.5
    keys = [tensor(1, steps, key_heads, key_width, low=-long, high=long) for _ in range(2)]
    rates = tensor(1, steps, heads, low=-2, high=0), tensor(1, steps, heads, low=0, high=1)
    return *keys, tensor(1, steps, heads, width), *rates


def places() -> Any:
    return tensor(values=PLACES, dtype="i32")


def start() -> Symbol:
    return Symbol("p")


def scan(
    steps: int | str, heads: int, width: int, columns: int, groups: int, limits: tuple[Any, Any] = (0.0, None)
) -> tuple[Any, ...]:
    x = tensor(1, steps, heads * width + 2 * groups * columns, low=-1, high=1)
    rates = weight(heads, low=-2, high=-0.1), weight(heads), weight(heads, low=-1, high=1)
    return x, tensor(1, steps, heads), *rates, groups, *limits


def scan_state(slots: int, heads: int, width: int, columns: int) -> Any:
    return weight(slots, heads, width, columns, low=-1, high=1, dtype="f32")
