"""The scan of Mamba-2 against float64, over several calls of one sequence and over rows of several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from arguments import tensor, weight
from check import check_op, each, floats, refuse_op
from one_operator import OneOperator
from recurrent_cases import LIVE, PLACES, SCAN, SLOTS, OneSequence, Rows, places, scan, scan_state, start

from pteron.dtypes import DType
from pteron.ops import Target
from pteron.reference.recurrent import ssm_scan

pytestmark = pytest.mark.kernels

# Heads, width, columns, groups.
SIZES = [(1, 1, 1, 1), (4, 8, 16, 2), (3, 7, 5, 3), (6, 13, 67, 2), (2, 5, 128, 1), (5, 3, 131, 1)]


def check(target: Target, arguments: tuple[Any, ...], state: Any, live: Any = LIVE, **options: Any) -> None:
    oracle = OneSequence(SCAN)
    options = {"oracle": oracle, "live": live, "target": target, **options}
    check_op(f"{SCAN}.default", *arguments, state, start(), **options)


@each("sizes", SIZES)
def test_chunks_continue_a_sequence(sizes: tuple[int, int, int, int], target: Target) -> None:
    """The state begins as NaN, which position 0 must not read."""
    state = weight(values=np.full((1, *sizes[:3]), np.nan), dtype="f32")
    check(target, scan("S", *sizes), state, plans=2)


@floats
def test_types_and_bounds_of_steps(dtype: str, target: Target) -> None:
    check(target, scan("S", 4, 8, 16, 2, (0.4, 1.5)), scan_state(1, 4, 8, 16), dtype=dtype)


def test_small_steps_keep_their_digits(target: Target) -> None:
    """softplus(-12) is 6e-6: 1 + exp(-12) has no digits left for it. Without d · x nothing hides it."""
    arguments = list(scan("S", 3, 5, 7, 1))
    arguments[0] = tensor(1, "S", 3 * 5 + 2 * 7, low=0.1, high=1)  # nothing cancels
    arguments[3:5] = [weight(values=np.zeros(3)), weight(values=np.linspace(-12, -4, 3))]
    check(target, tuple(arguments), weight(1, 3, 5, 7, low=0, high=0), atol=1e-12)


def test_chunkings_give_the_same_bits(target: Target) -> None:
    random, size = np.random.default_rng(0), 4 * 6 + 2 * 2 * 19
    arguments = (*scan("S", 4, 6, 19, 2), scan_state(1, 4, 6, 19), start())
    xbc, dt = (random.uniform(-2, 2, (1, 23, width)).astype(np.float32) for width in (size, 4))
    constants = [*arguments[2:5], arguments[-2]]
    leaves = {leaf: leaf.draw({}, "f32", random) for leaf in constants}
    most = {arguments[0]: xbc, arguments[1]: dt, **leaves, arguments[-1]: 0}
    results = []
    for chunks in ([23], [1] * 23, [5, 1, 11, 6]):
        operator = OneOperator(f"{SCAN}.default", arguments, most, [((1, 23, 24), DType.F32)], target)
        found, first = [], 0
        for count in chunks:
            part = slice(first, first + count)
            given: dict[Any, Any] = {
                arguments[0]: xbc[:, part],
                arguments[1]: dt[:, part],
                arguments[-1]: first,
            }
            found += operator.run({**leaves, **given})
            first += count
        results.append((np.concatenate(found, 1), operator.state(arguments[-2])))
        operator.close()
    for out, state in results[1:]:
        np.testing.assert_array_equal(out, results[0][0])
        np.testing.assert_array_equal(state, results[0][1])


def test_long_calls_are_split_where_loops_end(target: Target) -> None:
    limited, live = replace(target, loop_max=100), {"S": (37, 1, 29), "p": (0, 37, 38)}
    check(limited, scan("S", 2, 3, 17, 1), scan_state(1, 2, 3, 17), live)


@pytest.mark.long(every=2)
@floats
def test_rows_of_sequences(dtype: str, target: Target) -> None:
    for sizes in SIZES[1:4]:
        arguments = (*scan(len(PLACES), *sizes), scan_state(SLOTS, *sizes[:3]), places())
        check_op(f"{SCAN}_rows", *arguments, oracle=Rows(SCAN, 2), target=target, dtype=dtype)


def test_wrong_shapes_are_refused() -> None:
    def refuse(arguments: tuple[Any, ...], state: Any, match: str) -> None:
        refuse_op(f"{SCAN}.default", *arguments, state, 0, match=match)

    good, state = scan(3, 4, 8, 16, 2), scan_state(1, 4, 8, 16)
    refuse((*good[:5], 3, 0.0, None), state, "4 heads in 3 groups")
    refuse((tensor(1, 3, 95), *good[1:]), state, r"xbc must be \[1, steps, 96\]")
    refuse((good[0], tensor(1, 2, 4), *good[2:]), state, r"dt \[1, steps, 4\]")
    for place in (2, 3, 4):
        refuse((*good[:place], weight(3), *good[place + 1 :]), state, "a number per head")
    refuse(good, weight(4, 8, 16), "state must be")
    refuse(good, weight(1, 4, 8, 16, dtype="f16"), "state must be")


def test_the_reference_is_the_matrix_of_the_paper() -> None:
    """Steps equal the quadratic form: out[t] = Σ C[t]·B[s] · exp(Σ dt a) · dt[s] · x[s], s ≤ t."""
    steps, heads, width, columns = 6, 2, 3, 5
    xbc, dt = torch.rand(1, steps, heads * width + 2 * columns).double(), torch.rand(1, steps, heads).double()
    a, zeros = -torch.rand(heads).double(), torch.zeros(heads).double()
    state = torch.full((1, heads, width, columns), torch.nan).double()
    found = ssm_scan(xbc, dt, a, zeros, zeros, 1, 0.0, None, state, 0)[0].reshape(steps, heads, width)
    x, b, c = xbc[0].split([heads * width, columns, columns], -1)
    delta = torch.nn.functional.softplus(dt[0])
    sums = (delta * a).cumsum(0)
    scores = torch.tril(c @ b.T)[..., None] * torch.exp(sums[:, None] - sums[None]) * delta[None]
    torch.testing.assert_close(found, torch.einsum("tsh,shp->thp", scores, x.reshape(steps, heads, width)))
