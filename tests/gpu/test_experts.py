"""Mixtures of experts: routing, products with chosen matrices and weighted sums, against float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from arguments import tensor, weight
from check import check_op, each, floats, refuse_op
from expert_cases import PLAIN, mlp, mlp_arguments
from quantized_cases import EXPERTS_Q8, bytes_of, groups_of, packed, scales, scales_of

from pteron.families.quantized import tiled_q4
from pteron.ops import Target
from pteron.reference.experts import experts_q4

pytestmark = pytest.mark.kernels

ROUTE, COMBINE = "pteron.route.default", "pteron.combine.default"
FLOAT, INT8, Q4 = (f"pteron.experts_{kind}.default" for kind in ("linear", "int8", "q4gsw"))
TOKENS = {"M": (11, 1, 5, 2, 7)}


def experts(k: int, count: int) -> Any:
    return tensor("M", k, dtype="i32", low=0, high=count - 1)


@each(
    ("count", "k", "scoring", "has_bias", "groups", "normalised", "scale"),
    [
        (1, 1, "softmax", False, PLAIN, False, 1.0),
        (512, 10, "softmax", False, PLAIN, True, 1.0),  # on CPUs, its kernel takes 15 s to compile
        (15, 3, "sigmoid", True, (5, 2, 2), False, 1.0),
        (257, 9, "sigmoid", True, PLAIN, True, 2.5),
        (61, 4, "softmax", True, PLAIN, True, 1.0),
        (64, 6, "softmax", False, (8, 3, 1), False, 16.0),
        (7, 7, "softmax", False, PLAIN, False, 2.5),
        (8, 2, "softmax", False, PLAIN, True, 1.0),
        (128, 8, "softmax", False, PLAIN, True, 1.0),
        (256, 8, "sigmoid", True, (8, 4, 2), True, 2.5),
    ],
)
def test_routes(
    count: int,
    k: int,
    scoring: str,
    has_bias: bool,
    groups: tuple[int, int, int],
    normalised: bool,
    scale: float,
    target: Target,
) -> None:
    bias = weight(count, low=-0.2, high=0.2) if has_bias else None
    arguments = (tensor("M", count), k, scoring, bias, *groups, normalised, scale)
    check_op(ROUTE, *arguments, live=TOKENS, target=target)


def test_equal_logits_choose_the_first(target: Target) -> None:
    logits = tensor(values=[[0.0] * 7, [1.0, 2, 2, 1, 2, 2, 0]])
    arguments = (logits, 3, "softmax", None, *PLAIN, True, 1.0)
    check_op(ROUTE, *arguments, target=target)


@floats
def test_sums(dtype: str, target: Target) -> None:
    for k, width in ((1, 1), (3, 67), (8, 130)):
        check_op(COMBINE, tensor("M", k, width), tensor("M", k), live=TOKENS, dtype=dtype, target=target)


SIZES = [(1, 8, 5, 3), (5, 1, 3, 2), (4, 36, 67, 2), (7, 101, 13, 3), (3, 324, 130, 1)]


@pytest.mark.long(every=12)
@pytest.mark.parametrize("by_pair", [False, True])
@pytest.mark.parametrize(("count", "depth", "rows", "k"), SIZES)
def test_products(count: int, depth: int, rows: int, k: int, by_pair: bool, target: Target) -> None:
    x = tensor("M", *([k] if by_pair else []), depth, low=-1, high=1)
    chosen, every = experts(k, count), count * rows
    options: dict[str, Any] = {"live": TOKENS, "target": target, "tolerance": 5e-5}
    check_op(FLOAT, x, chosen, weight(every, depth), count, **options)
    check_op(INT8, x, chosen, bytes_of(every, depth), scales_of(every), count, **options)
    for group, minima in ((32, True), (16, False)):
        matrices = groups_of(every, depth, group, minima=minima)
        check_op(EXPERTS_Q8, x, chosen, *matrices, count, **options)
    if depth % 4 == 0:
        nibbles = weight(values=packed(every, depth), dtype="u8")
        check_op(Q4, x, chosen, nibbles, scales(depth, 32, every), 32, count, **options)


@pytest.mark.long(every=3)
@pytest.mark.parametrize("depth", [32, 324, 2048])
def test_four_bits_in_integers(depth: int, own_subgroups: Target) -> None:
    """The kernel of decode steps, on devices with subgroups."""
    for x in (tensor("M", depth), tensor("M", 3, depth)):
        arguments = (x, experts(3, 5), weight(values=packed(5 * 67, depth), dtype="u8"))
        last = (scales(depth, 32, 5 * 67), 32, 5)
        check_op(Q4, *arguments, *last, live=TOKENS, target=own_subgroups, tolerance=5e-5)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("depth", [32, 324, 2048])
def test_gated_in_integers(depth: int, own_subgroups: Target) -> None:
    _check_gated(depth, own_subgroups)


def test_gated(target: Target) -> None:
    for depth in (36, 128):
        _check_gated(depth, target)


@pytest.mark.parametrize("depth", [36, 128])
def test_gated_groups(depth: int, groups: Target) -> None:
    _check_gated(depth, groups, MANY)


def _check_gated(depth: int, target: Target, live: Mapping[str, tuple[int, ...]] = TOKENS) -> None:
    weights = [weight(values=packed(5 * 67, depth)[::step], dtype="u8") for step in (1, -1)]
    by_group = [scales(depth, 32, 5 * 67) for _ in weights]

    def oracle(x: Any, chosen: Any, gate: Any, gate_scales: Any, up: Any, up_scales: Any, *rest: int) -> Any:
        left, right = (
            experts_q4(x, chosen, gate, gate_scales, *rest),
            experts_q4(x, chosen, up, up_scales, *rest),
        )
        return torch.nn.functional.silu(left) * right

    x = tensor("M", depth, low=-1, high=1)
    pairs = (weights[0], by_group[0], weights[1], by_group[1])
    options: dict[str, Any] = {"live": live, "target": target, "tolerance": 1e-4, "oracle": oracle}
    check_op("pteron.experts_gated_q4", x, experts(3, 5), *pairs, 32, 5, **options)


def test_matrices_in_turn(target: Target) -> None:
    x = tensor("M", 3, 36, low=-1, high=1)
    options: dict[str, Any] = {"live": TOKENS, "target": target, "tolerance": 5e-5}
    check_op(FLOAT, x, None, weight(3 * 13, 36), 3, **options)
    check_op(INT8, x, None, bytes_of(3 * 13, 36), scales_of(3 * 13), 3, **options)
    check_op(EXPERTS_Q8, x, None, *groups_of(3 * 13, 36, 16, minima=True), 3, **options)
    matrices = weight(values=packed(3 * 13, 36), dtype="u8")
    check_op(Q4, x, None, matrices, scales(36, 32, 3 * 13), 32, 3, **options)


MLPS = [(64, 32, 5, 3, True), (36, 68, 3, 1, False), (128, 96, 8, 8, True), (260, 64, 7, 2, True)]


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("depth", "hidden", "count", "k", "is_full"), MLPS)
def test_mlps(depth: int, hidden: int, count: int, k: int, is_full: bool, target: Target) -> None:
    _check_mlp(mlp_arguments(depth, hidden, count, k, is_full), target)


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("depth", "hidden", "count", "k", "is_full"), MLPS)
def test_mlps_in_integers(
    depth: int, hidden: int, count: int, k: int, is_full: bool, own_subgroups: Target
) -> None:
    _check_mlp(mlp_arguments(depth, hidden, count, k, is_full), own_subgroups)


@pytest.mark.long(every=2)
@pytest.mark.parametrize(("depth", "hidden", "count", "k", "is_full"), MLPS[::2])
def test_mlps_in_groups(depth: int, hidden: int, count: int, k: int, is_full: bool, groups: Target) -> None:
    _check_mlp(mlp_arguments(depth, hidden, count, k, is_full), groups)


def _check_mlp(arguments: list[Any], target: Target) -> None:
    options: dict[str, Any] = {"live": {"M": (31, 1, 3, 9)}, "target": target, "oracle": mlp}
    check_op("pteron.experts_mlp_q4", *arguments, tolerance=2e-4, **options)


# Rows are grouped for tiles; bands are full or not. All rows have matrix 0, or some matrices have none.
MANY = {"M": (67, 1, 29, 9, 41)}


@pytest.fixture
def groups(target: Target, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target on which rows are grouped however few they are."""
    monkeypatch.setattr(tiled_q4, "GROUP_ROWS_MIN", 0)
    return target


@pytest.mark.long(every=4)
@pytest.mark.parametrize(
    ("count", "k", "chosen", "depth", "rows"),
    [(3, 2, (0, 2), 36, 67), (5, 3, (0, 0), 128, 130), (8, 8, (0, 7), 68, 8), (1, 1, (0, 0), 324, 64)],
)
def test_groups(count: int, k: int, chosen: tuple[int, int], depth: int, rows: int, groups: Target) -> None:
    numbers = tensor("M", k, dtype="i32", low=chosen[0], high=chosen[1])
    options: dict[str, Any] = {"live": MANY, "target": groups, "tolerance": 5e-5}
    matrices = weight(values=packed(count * rows, depth), dtype="u8")
    for x in (tensor("M", depth, low=-1, high=1), tensor("M", k, depth, low=-1, high=1)):
        check_op(Q4, x, numbers, matrices, scales(depth, 32, count * rows), 32, count, **options)
    integers = bytes_of(count * rows, depth), scales_of(count * rows)
    check_op(INT8, x, numbers, *integers, count, **options)
    in_groups = groups_of(count * rows, depth, 32, minima=True)
    check_op(EXPERTS_Q8, x, numbers, *in_groups, count, **options)
    if k == count:
        check_op(Q4, x, None, matrices, scales(depth, 32, count * rows), 32, count, **options)


def test_half_precision(target: Target) -> None:
    x = tensor("M", 64, low=-1, high=1)
    options: dict[str, Any] = {"live": TOKENS, "target": target, "tolerance": 1e-2}
    check_op(FLOAT, x, experts(2, 3), weight(3 * 13, 64), 3, dtype="f16", **options)
    check_op(INT8, x, experts(2, 3), bytes_of(3 * 13, 64), scales_of(3 * 13), 3, dtype="f16", **options)
    matrices = weight(values=packed(3 * 16, 64), dtype="u8")
    check_op(Q4, x, experts(2, 3), matrices, scales(64, 32, 3 * 16), 32, 3, dtype="f16", **options)


def test_deep_products(target: Target) -> None:
    x = tensor("M", 9004, low=-1, high=1)
    options: dict[str, Any] = {"live": {"M": (3, 1)}, "target": target}
    check_op(FLOAT, x, experts(2, 2), weight(2 * 3, 9004), 2, tolerance=1e-4, **options)
    check_op(INT8, x, experts(2, 2), bytes_of(2 * 3, 9004), scales_of(6), 2, tolerance=1e-4, **options)


def test_refused() -> None:
    plain = (None, *PLAIN, True, 1.0)
    refuse_op(ROUTE, tensor(3, 4), 5, "softmax", *plain, match="5 of 4 experts", out=((3, 5), (3, 5)))
    refuse_op(ROUTE, tensor(3, 4), 2, "tanh", *plain, match="softmax, sigmoid", out=((3, 2), (3, 2)))
    # Experts, groups, kept groups, the best that count of each.
    for k, *wrong in ((5, 2, 1, 1), (1, 3, 1, 1), (1, 2, 3, 1), (1, 2, 0, 1), (1, 2, 1, 5)):
        options = ("softmax", None, *wrong, True, 1.0)
        out = ((3, k), (3, k))
        refuse_op(ROUTE, tensor(3, 8), k, *options, match=f"{wrong[0]} groups", out=out, dtype="i32")
    chosen = tensor(3, 2, dtype="i32", low=0, high=1)
    refuse_op(FLOAT, tensor(4, 8), chosen, weight(6, 8), 2, match="tokens", out=((3, 2, 3),))
    refuse_op(FLOAT, tensor(3, 8), chosen, weight(5, 8), 2, match="2 matrices", out=((3, 2, 3),))
