"""Short convolutions and the gated delta rule, with states that calls read and write, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from check import check_op, each, refuse_op
from recurrent_cases import (
    CONV,
    DELTA,
    LIVE,
    PLACES,
    SLOTS,
    OneSequence,
    Rows,
    conv,
    conv_state,
    delta,
    places,
    start,
)

from pteron.ops import Target

pytestmark = pytest.mark.kernels


@each(
    ("channels", "taps", "bias", "silu", "dtype"),
    [
        (1, 2, False, False, "f32"),
        (67, 4, True, True, "f32"),
        (130, 3, False, False, "f16"),
        (32, 11, True, False, "f32"),
    ],
)
def test_convolutions(channels: int, taps: int, bias: bool, silu: bool, dtype: str, target: Target) -> None:
    state = conv_state(1, channels, taps)
    arguments = (*conv("S", channels, taps, bias=bias, silu=silu), state, start())
    tolerance = 1e-2 if dtype == "f16" else None
    check_op(
        f"{CONV}.default",
        *arguments,
        oracle=OneSequence(CONV),
        live=LIVE,
        dtype=dtype,
        target=target,
        tolerance=tolerance,
    )


def test_position_0_reads_no_state(target: Target) -> None:
    """The buffer may hold anything: NaN here."""
    for name, arguments, state in (
        (CONV, conv("S", 13, 4), weight(values=np.full((1, 3, 13), np.nan))),
        (DELTA, delta("S", 2, 1, 5, 7), weight(values=np.full((1, 2, 5, 7), np.nan))),
    ):
        live = {"S": (1, 5, 1, 2), "p": (0, 1, 6, 0)}
        check_op(
            f"{name}.default", *arguments, state, start(), oracle=OneSequence(name), live=live, target=target
        )


@each(("channels", "taps", "silu"), [(1, 2, False), (67, 4, True)])
def test_convolutions_of_rows(channels: int, taps: int, silu: bool, target: Target) -> None:
    x, weights, bias, _ = conv(len(PLACES), channels, taps, bias=True)
    arguments = (x, weights, bias, silu, conv_state(SLOTS, channels, taps), places())
    check_op(f"{CONV}_rows", *arguments, oracle=Rows(CONV, 1), target=target)


@each(
    ("heads", "key_heads", "key_width", "width"),
    [(1, 1, 1, 1), (4, 2, 16, 16), (6, 2, 13, 67), (2, 2, 128, 5)],
    every=3,
)
def test_gated_delta_rule(heads: int, key_heads: int, key_width: int, width: int, target: Target) -> None:
    state = weight(1, heads, key_width, width)
    arguments = (*delta("S", heads, key_heads, key_width, width), state, start())
    check_op(f"{DELTA}.default", *arguments, oracle=OneSequence(DELTA), live=LIVE, target=target)


def test_gated_delta_rule_in_half_precision(target: Target) -> None:
    """The state stays in f32."""
    arguments = (*delta("S", 4, 2, 16, 8), weight(1, 4, 16, 8, dtype="f32"), start())
    options: dict[str, Any] = {"dtype": "f16", "tolerance": 1e-2, "target": target}
    check_op(f"{DELTA}.default", *arguments, oracle=OneSequence(DELTA), live=LIVE, **options)


def test_gated_delta_rule_of_rows(target: Target) -> None:
    arguments = (*delta(len(PLACES), 6, 2, 13, 17), weight(SLOTS, 6, 13, 17), places())
    check_op(f"{DELTA}_rows", *arguments, oracle=Rows(DELTA, 5), target=target)


def test_one_plan_serves_all_positions(target: Target) -> None:
    for name, arguments, state in (
        (CONV, conv(1, 8, 4), conv_state(1, 8, 4)),
        (DELTA, delta(1, 2, 1, 4, 4), weight(1, 2, 4, 4)),
    ):
        live = {"p": (0, 1, 2, 3, 0, 7)}
        oracle = OneSequence(name)
        check_op(
            f"{name}.default", *arguments, state, start(), oracle=oracle, live=live, target=target, plans=0
        )


def test_wrong_shapes_are_refused() -> None:
    def refuse(name: str, *arguments: object, match: str) -> None:
        refuse_op(f"{name}.default", *arguments, 0, match=match, out=((1, 3, 5),))

    x, weights, bias, silu = conv(3, 5, 4, bias=True)
    refuse(CONV, x, weights, bias, silu, weight(1, 4, 5), match=r"state must be \[1, taps - 1, channels\]")
    refuse(CONV, x, weights, bias, silu, weight(2, 3, 5), match="state must be of one sequence")
    refuse(CONV, tensor(3, 4), weights, bias, silu, weight(1, 3, 5), match="weight must be")
    refuse(CONV, x, weight(5, 1), bias, silu, weight(1, 0, 5), match="two taps at least")
    refuse(CONV, tensor(2, 3, 5), weights, bias, silu, weight(1, 3, 5), match=r"x must be \[1, steps")
    refuse(CONV, x, weights, weight(4), silu, weight(1, 3, 5), match="a value per channel")
    q, k, v, g, beta = delta(3, 4, 2, 8, 6)
    refuse(DELTA, q, k, v, g, tensor(1, 3, 2), weight(1, 4, 8, 6), match="g and beta must be")
    refuse(DELTA, q, k, v, g, beta, weight(1, 4, 6, 8), match="state must be")
    refuse(DELTA, q, k, v, g, tensor(1, 2, 4), weight(1, 4, 8, 6), match="g and beta must be")
    refuse(DELTA, q, k, tensor(1, 3, 3, 6), g, beta, weight(1, 3, 8, 6), match="heads of values")
    refuse(DELTA, q, k, tensor(1, 2, 4, 6), g, beta, weight(1, 4, 8, 6), match="for the same steps")
    refuse(DELTA, q, k, tensor(3, 4, 6), g, beta, weight(1, 4, 8, 6), match="q, k and v must be")
    for steps, heads, width in ((3, 2, 9), (3, 4, 8), (2, 2, 8)):
        keys, state = tensor(1, steps, heads, width), weight(1, 4, width, 6)
        refuse(DELTA, q, keys, v, g, beta, state, match="must have one shape")
    wide = tensor(1, 3, 2, 257)
    refuse(DELTA, wide, wide, v, g, beta, weight(1, 4, 257, 6), match=r"width of keys \(up to 256\)")


def test_positions_and_places_that_do_not_fit_are_refused() -> None:
    x, out = conv(3, 5, 4), ((1, 3, 5),)
    refuse_op(f"{CONV}.default", *x, conv_state(1, 5, 4), -1, match="position -1 is negative", out=out)
    two = tensor(values=PLACES[:2], dtype="i32")
    refuse_op(f"{CONV}_rows", *x, conv_state(SLOTS, 5, 4), two, match=r"places are \[rows, 2\]", out=out)
