"""Measured cases of rows that belong to different sequences."""

from __future__ import annotations

import numpy as np
from arguments import Symbol, tensor, weight
from int8_caches import int8_cache
from lora_cases import ADAPTER_ROWS, LORA, SLOTS, TOKENS, adapters_of_slots, lora, matrices
from measured_case import Case, case
from row_cases import (
    ANGLES,
    ATTEND,
    NO_OPTIONS,
    PLACE,
    PLACES,
    TURNED,
    RowAttention,
    TurnedAttention,
    angles_of,
    caches,
    heads_of,
    places_of,
)


def attention(width: int, kernels: str, on: str, heads: int = 4, times: int = 13) -> Case:
    """Over contexts `times` as long as those of PLACES."""
    most = 23 * times + 1
    given = (*heads_of(len(PLACES), heads, 2, width), *caches(2, width, 7, most))
    rest = tensor(values=PLACES * [times, 1], dtype="i32"), Symbol("c"), None, *NO_OPTIONS, None
    live = {"c": (most, most - times)}
    return case(
        ATTEND, *given, *rest, kernels=f"write_rows {kernels}", on=(on,), oracle=RowAttention, live=live
    )


def optioned(on: str, *, is_int8: bool = False) -> Case:
    """With a window, a soft cap, sinks, slopes and values of another width."""
    q, k, _ = heads_of(len(PLACES), 4, 2, 20)
    v, v_cache = tensor(1, len(PLACES), 2, 12), weight(7, 300, 2, 12)
    k_cache, _ = caches(2, 20, 7, 300)
    if is_int8:
        k_cache, v_cache = (int8_cache(np.ones((7, 300, 2, each))) for each in (20, 12))
    places = tensor(values=PLACES * [13, 1], dtype="i32")
    options = (None, 37, 9.0, weight(4), weight(4), None)
    arguments = (q, k, v, k_cache, v_cache, places, Symbol("c"), *options)
    kernels = "write_int8" if is_int8 else "write_rows"
    return case(ATTEND, *arguments, kernels=kernels, on=(on,), oracle=RowAttention, live={"c": (300, 287)})


ROW_CASES = [
    case(ADAPTER_ROWS, *SLOTS, kernels="lora_rows", oracle=adapters_of_slots, out="i32"),
    case(
        LORA,
        *(tensor("M", 37), tensor("M", 13), *matrices([3, 0, 5], 37, 13)),
        tensor("M", dtype="i32", low=0, high=3),
        kernels="lora_down lora_up",
        oracle=lora,
        live=TOKENS,
    ),
    case(
        PLACE,
        tensor(values=np.array([3, 0, -1, 4, 1, 99]), dtype="i32"),
        weight(values=np.array([11, 12, 13, 14, 15]), dtype="i32"),
        weight(values=np.array([0, 5, 9, 22, 7]), dtype="i32"),
        kernels="locate_rows",
        oracle=places_of,
        dtype="i32",
    ),
    case(
        ANGLES,
        weight(31, 6),
        weight(31, 6),
        tensor(values=PLACES, dtype="i32"),
        kernels="row_angles",
        oracle=angles_of,
    ),
    case(
        TURNED,
        *heads_of(len(PLACES), 4, 2, 8),
        tensor(len(PLACES), 12, low=-1, high=1),
        "halves",
        *caches(2, 8),
        tensor(values=PLACES, dtype="i32"),
        Symbol("c"),
        None,
        *NO_OPTIONS,
        kernels="rope_rows",
        oracle=TurnedAttention,
        live={"c": (23,)},
    ),
    attention(6, "attention_scores attention_values", "software"),
    attention(20, "attention_split attention_merge", "hardware"),
    attention(64, "attention_decode", "subgroups", heads=10),
    attention(64, "attention_decode attention_merge", "subgroups", heads=10, times=31),
    *(optioned(kind) for kind in ("software", "hardware", "subgroups")),
    *(optioned(kind, is_int8=True) for kind in ("software", "hardware", "subgroups")),
]
