"""Attention whose queries and keys are turned on their way into the caches: an operator and a rewrite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import Symbol, tensor, weight
from attention_cases import CAPACITY, DECODE, NO_OPTIONS, RING, RING_WINDOW, TurnedAttention
from check import check_op, each, each_float, floats, refuse_op
from int8_caches import empty_caches
from small_graphs import run

from pteron.gpu import Device
from pteron.ops import Target

FUSED = "pteron.rope_sdpa"
ROWS = 41  # of the tables
NO_NORMS = (None, None, None, None)
FORMS = ["neighbours", "halves", "pairs"]


def arguments(
    form: str,
    heads: int = 4,
    key_heads: int = 2,
    width: int = 8,
    batch: int = 1,
    norms: tuple[Any, ...] = NO_NORMS,
    options: tuple[Any, ...] = NO_OPTIONS,
) -> tuple[Any, ...]:
    """What the operator takes; live positions are those of the caches, three further in the tables."""
    q, k, v = (tensor(batch, "S", count, width) for count in (heads, key_heads, key_heads))
    caches = (weight(batch, CAPACITY, key_heads, width), weight(batch, CAPACITY, key_heads, width))
    rest = (*caches, Symbol("p"), None, True, None, *options, *norms)
    columns = {"neighbours": width // 2, "halves": width - 2}

    def table(*shape: int) -> Any:
        return weight(*shape, low=-1, high=1)

    if form == "pairs":
        return q, k, v, form, table(key_heads, width), None, None, None, *rest
    tables = (table(ROWS, columns[form]), table(ROWS, columns[form]))
    end = Symbol("e") if form == "neighbours" else None
    return q, k, v, form, *tables, Symbol("t"), end, *rest


LIVE = {
    **DECODE,
    "t": tuple(p + 3 for p in DECODE["p"]),
    "e": tuple(p + 3 + s for p, s in zip(DECODE["p"], DECODE["S"], strict=True)),
}

HALF = {"f16": 8e-3}  # keys are rounded once they are turned, before they are multiplied


@each_float
@each("form", FORMS, every=3)
@each(("key_heads", "width", "batch"), [(4, 8, 1), (4, 64, 2), (1, 16, 2)])
def test_every_form(form: str, key_heads: int, width: int, batch: int, dtype: str, target: Target) -> None:
    heads = key_heads if form == "pairs" else 4
    case = arguments(form, heads, key_heads, width, batch)
    check_op(
        FUSED,
        *case,
        oracle=TurnedAttention(),
        live=LIVE,
        dtype=dtype,
        target=target,
        tolerance=HALF.get(dtype),
    )


@pytest.mark.long(every=9)
@floats
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("key_heads", "width", "batch"), [(4, 8, 1), (4, 64, 2), (1, 128, 1)])
def test_normed_heads(form: str, key_heads: int, width: int, batch: int, dtype: str, target: Target) -> None:
    heads = key_heads if form == "pairs" else 4
    case = arguments(form, heads, key_heads, width, batch, (weight(width), 1e-6, weight(width), 0.5))
    check_op(
        FUSED,
        *case,
        oracle=TurnedAttention(),
        live=LIVE,
        dtype=dtype,
        target=target,
        tolerance=HALF.get(dtype),
    )


@each("form", FORMS)
def test_options(form: str, target: Target) -> None:
    options = (4, 2.5, weight(4), weight(4, low=0, high=1))
    case = arguments(form, 4, 4 if form == "pairs" else 2, options=options)
    check_op(FUSED, *case, oracle=TurnedAttention(), live=LIVE, target=target)


@pytest.mark.parametrize("form", ["neighbours", "halves"])
def test_decoding_takes_no_new_plan(form: str, target: Target) -> None:
    steps = range(CAPACITY)
    live = {"S": (1,), "p": tuple(steps), "t": tuple(steps), "e": tuple(p + 1 for p in steps)}
    check_op(FUSED, *arguments(form), oracle=TurnedAttention(), live=live, target=target, plans=1)


def test_caches_and_tables_of_another_type(target: Target) -> None:
    q, k, v, form, *_ = arguments("halves")
    tables = (weight(ROWS, 8, low=-1, high=1), weight(ROWS, 8, low=-1, high=1))
    caches = (weight(1, CAPACITY, 2, 8, dtype="f16"), weight(1, CAPACITY, 2, 8, dtype="f16"))
    rest = (Symbol("p"), None, True, None, *NO_OPTIONS, *NO_NORMS)
    case = (q, k, v, form, *tables, Symbol("t"), None, *caches, *rest)
    check_op(FUSED, *case, oracle=TurnedAttention(), live=LIVE, target=target, tolerance=5e-3)


@each("norms", [NO_NORMS, (weight(40), 1e-6, weight(40), 0.5)])
@each("form", FORMS)
def test_int8_caches(form: str, norms: tuple[Any, ...], target: Target) -> None:
    """Turned keys may be rounded to a neighbouring code."""
    given = arguments(form, 4, 4 if form == "pairs" else 2, 40, 2, norms)
    caches = empty_caches(2, CAPACITY, given[1].shape[2], 40)
    case = (*given[:8], *caches, *given[10:])
    check_op(FUSED, *case, oracle=TurnedAttention(), live=LIVE, target=target, tolerance=5e-3)


@each("norms", [NO_NORMS, (weight(8), 1e-6, weight(8), 0.5)])
@each("form", FORMS, every=2)
def test_rings(form: str, norms: tuple[Any, ...], target: Target) -> None:
    """Caches of 23 rows over 106 positions; tables of angles have a row for each."""
    options = (RING_WINDOW, None, weight(4), None)
    given = list(arguments(form, 4, 4 if form == "pairs" else 2, batch=2, norms=norms, options=options))
    if form != "pairs":
        given[4:6] = [weight(120, given[4].shape[1], low=-1, high=1) for _ in range(2)]
    ends = tuple(p + s for p, s in zip(RING["p"], RING["S"], strict=True))
    live = {**RING, "t": RING["p"], "e": ends}
    check_op(FUSED, *given, oracle=TurnedAttention(120), live=live, target=target)


def test_refusals() -> None:
    def refuse(case: tuple[Any, ...], match: str) -> None:
        refuse_op(FUSED, *case, live=LIVE, out=((2, 7, 4, 8),), match=match)

    q, k, v, form, *rest = arguments("halves", batch=2)
    refuse((tensor(1, "S", 4, 8), k, v, form, *rest), "one batch size")
    refuse((q, k, tensor(2, "S", 3, 8), form, *rest), "keys and values must have one shape")
    refuse((q, tensor(2, 3, 2, 8), v, form, *rest), "same steps")
    refuse((q, k, v, form, weight(20, 6), weight(20, 6), *rest[2:]), "leave the table")
    norms = (weight(8), 0.1, weight(7), 0.1)
    refuse(arguments("halves", batch=2, norms=norms), "weight must have the size of x's last dim")
    q, k, v, form, *rest = arguments("pairs", 2, 2, batch=2)
    refuse((tensor(2, "S", 4, 8), k, v, form, *rest), "a value for each of x's columns")


# As a rewrite -----------------------------------------------------------------------------------

MODELS = ["tiny_llama_fp32", "tiny_llama_8da4w", "tiny_llama_q4_fp16", "tiny_qwen3_fp32"]


@pytest.mark.long(every=4)
@pytest.mark.parametrize("name", MODELS)
def test_models_with_and_without(name: str, models: Path, device: Device, target: Target) -> None:
    path = models / f"{name}.pte"
    names = ["rope_slice", "rope_sdpa", "norm_rope_sdpa"]
    with_them, fewer = run(names, path, device, target)
    without, more = run([], path, device, target)
    layers = 2
    # Two writes of a cache fewer in each layer, and two slices of tables in all; or two norms and one write.
    assert more - fewer == (3 * layers if "qwen" in name else 2 * layers + 2)
    for a, b in zip(with_them, without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 if "fp16" not in name else 2e-2)
