"""Weights of 8 bits in groups with scales and minima: products and embeddings against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from check import check_op, each, floats, refuse_op
from quantized_cases import EMBEDDING_Q8, LINEAR_Q8, bytes_of, groups_of

from pteron.ops import Target

pytestmark = pytest.mark.kernels

LIVE_ROWS = {"M": (67, 1, 33, 2, 5, 3, 17, 4)}
# With groups, words and vec4s that are whole, and that are not.
SHAPES = [(16, 16), (32, 32), (101, 16), (36, 32), (331, 32), (576, 16), (1030, 32)]


@pytest.mark.long(every=21)
@pytest.mark.parametrize("minima", [False, True])
@pytest.mark.parametrize(("depth", "group"), SHAPES)
@pytest.mark.parametrize("columns", [1, 67, 130])
def test_products(depth: int, group: int, columns: int, minima: bool, target: Target) -> None:
    x, bias = tensor("M", depth, low=-1, high=1), weight(columns) if columns > 1 else None
    weights = groups_of(columns, depth, group, minima=minima)
    check_op(LINEAR_Q8, x, *weights, bias, live=LIVE_ROWS, target=target, tolerance=5e-5)


@pytest.mark.long(every=12)
@pytest.mark.parametrize(
    ("depth", "group", "minima"), [(64, 32, True), (1056, 32, False), (96, 16, False), (1088, 16, True)]
)
@pytest.mark.parametrize("columns", [1, 67, 130])
def test_few_rows_by_subgroups(depth: int, group: int, minima: bool, columns: int, few: Target) -> None:
    x, live = tensor("M", depth, low=-1, high=1), {"M": (4, 1, 2, 3)}
    weights = groups_of(columns, depth, group, minima=minima)
    check_op(LINEAR_Q8, x, *weights, weight(columns), live=live, target=few, tolerance=2e-5)


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e30])
def test_numbers_of_all_sizes(scale: float, few: Target) -> None:
    """Elements of x that are 2^20 apart in a chunk, and all of a size near the ends of the range."""
    random = np.random.default_rng(9)
    x = random.uniform(-1, 1, (3, 96)) * np.exp2(random.integers(-20, 1, (3, 96))) * scale
    weights = groups_of(13, 96, 32, minima=True)
    check_op(LINEAR_Q8, tensor(values=x), *weights, None, target=few, tolerance=2e-6, atol=2e-6 * scale)


@pytest.mark.long(every=2)
@floats
def test_float_types_and_more_dims(dtype: str, target: Target) -> None:
    tolerance = 5e-5 if dtype == "f32" else 1e-2
    options: dict[str, Any] = {"live": {"M": (33, 1, 0, 5)}, "target": target, "tolerance": tolerance}
    x = tensor(2, "M", 72, low=-1, high=1)
    for minima in (False, True):
        check_op(LINEAR_Q8, x, *groups_of(13, 72, 16, minima=minima), None, dtype=dtype, **options)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("rows", [1, 5])
def test_deep_products(rows: int, target: Target) -> None:
    """Rows that one invocation does not walk to their end."""
    x = tensor(values=np.random.default_rng(3).uniform(-1, 1, (rows, 80_003)))
    weights = groups_of(5, 80_003, 32, minima=True)
    check_op(LINEAR_Q8, x, *weights, None, target=target, tolerance=2e-3)


def test_weights_are_exact(target: Target) -> None:
    """Rows of an identity matrix give the weights: scale · integer + minimum, rounded at most twice."""
    random = np.random.default_rng(5)
    integers = random.integers(-128, 128, (64, 7)).astype(np.int8)
    scales, minima = (random.uniform(-1e-3, 1e-3, (4, 7)).astype(np.float32) for _ in range(2))
    arguments = (weight(values=integers.T, dtype="i8"), weight(values=scales, dtype="f32"))
    minimum = weight(values=minima, dtype="f32")
    x = tensor(values=np.eye(64))
    check_op(LINEAR_Q8, x, *arguments, minimum, 16, None, target=target, tolerance=2e-7)
    check_op(LINEAR_Q8, x, *arguments, None, 16, None, target=target, tolerance=6e-8)


@pytest.mark.long(every=2)
@floats
@each("minima", [False, True])
@each(("width", "group"), [(16, 16), (64, 32), (72, 32), (328, 16)])
def test_embeddings(width: int, group: int, minima: bool, dtype: str) -> None:
    tolerance = 1e-6 if dtype == "f32" else 1e-3
    for shape in ((1, "S"), ("S",)):
        indices = tensor(*shape, dtype="i64", low=0, high=12)
        table = groups_of(13, width, group, minima=minima)
        check_op(EMBEDDING_Q8, *table, indices, dtype=dtype, tolerance=tolerance)


def test_refusals() -> None:
    x, out = tensor(3, 32), [(3, 5)]
    good = groups_of(5, 32, 16, minima=True)
    refuse_op(LINEAR_Q8, tensor(3, 24), *good, None, match="weights \\[n, k\\]", out=out)
    unsigned = weight(5, 32, dtype="u8", low=0)
    refuse_op(LINEAR_Q8, x, unsigned, *good[1:], None, match="must be i8", out=out)
    refuse_op(LINEAR_Q8, x, *good[:3], 12, None, match="multiple of 8", out=out)
    refuse_op(LINEAR_Q8, x, *good[:3], 8, None, match="must be \\[4, 5\\]", out=out)
    short = weight(1, 5, dtype="f32")
    refuse_op(LINEAR_Q8, x, good[0], good[1], short, 16, None, match="must be \\[2, 5\\]", out=out)
    refuse_op(LINEAR_Q8, x, *good, weight(4), match="bias must be", out=out)
    indices = tensor(2, dtype="i64", low=0, high=4)
    narrow = (bytes_of(5, 12), *good[1:])
    refuse_op(EMBEDDING_Q8, *narrow, indices, match="a multiple of 8", out=[(2, 12)])
