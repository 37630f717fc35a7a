"""LoRA products of rows, for tests of values and of statements."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from arguments import tensor, weight

from pteron.families.linear.lora import CHOICE_WORDS

LORA, ADAPTER_ROWS = "pteron.lora", "pteron.adapter_rows"
TOKENS = {"M": (11, 1, 5, 2, 7)}
_CHOSEN = np.random.default_rng(1).integers(0, 9, (5, CHOICE_WORDS)).astype(np.int32)
_PLACES = np.array([[7, 4], [-1, -1], [0, 0], [3, 2], [3, 99]], np.int32)
SLOTS = (
    weight(values=_CHOSEN, dtype="i32"),
    tensor(1, 5, dtype="i32"),
    tensor(values=_PLACES, dtype="i32"),
)


def lora(x: Any, y: Any, a: Any, b: Any, ranks: Any, which: Any) -> torch.Tensor:
    out, depth = y.clone(), x.shape[-1]
    rows = x.reshape(-1, depth)
    chosen = which[len(which) - len(rows) :]
    for row, number in enumerate(chosen.tolist()):
        if number:
            rank = int(ranks[number - 1])
            added = b[number - 1, :rank].T @ (a[number - 1, :rank] @ rows[row])
            out.reshape(len(rows), -1)[row] += added
    return out


def matrices(ranks: list[int], depth: int, columns: int) -> tuple[Any, ...]:
    """Stacked matrices; what is beyond the rank of an adapter must not count."""
    shape = len(ranks), max(ranks)
    given = weight(values=np.array(ranks, np.int32), dtype="i32")
    small: dict[str, Any] = {"dtype": "f32", "low": -0.5, "high": 0.5}
    return weight(*shape, depth, **small), weight(*shape, columns, **small), given


def adapters_of_slots(chosen: Any, ids: Any, places: Any) -> torch.Tensor:
    slots = places[:, 1]
    is_slot = (slots >= 0) & (slots < len(chosen))
    return torch.where(is_slot, chosen[slots.clamp(0, len(chosen) - 1), 0], 0)
