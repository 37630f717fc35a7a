"""Scales and zero points: to the bit what PyTorch chooses in float32."""

from __future__ import annotations

import numpy as np
import pytest
from arguments import tensor
from check import check_op, each, each_float, refuse_op
from quantized_cases import AFFINE, PER_TENSOR, PER_TOKEN, per_tensor, per_token

from pteron.ops import Target

EXACT = 1e-9  # below the step between floats
EDGES = np.array(
    [
        [0.0, 0.0, 0.0],
        [1e-6, 2e-6, 3e-6],
        [-5.0, -1.0, -0.25],
        [0.5, 7.0, 1.0],
        [-1.0, 0.0, 1.0],
        [3e38, 0.0, 1.0],
        [-128.0, 127.0, 3.0],
        [-0.5, 254.5, 1.0],
    ],
    np.float32,
)


@each("length", [1, 7, 64, 300])
@each("mapping", ["ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"])
def test_rows(length: int, mapping: str, target: Target) -> None:
    x = tensor(1, "S", length, low=-2, high=3)
    for rest in ((None, -128, 127, None), (None, -8, 7, 1e-3), (None, None, None, None)):
        arguments = (x, mapping, [1, 1, length], *rest, None, None, False)
        check_op(AFFINE, *arguments, target=target, tolerance=EXACT)


@each("keepdim", [True, False])
@each("block", [[1, 4, 10], [1, 1, 5], [6, 8, 10], [1, 1, 1], [1, 8, 10], [3, 8, 10]])
def test_blocks(block: list[int], keepdim: bool, target: Target) -> None:
    rest = (None, -128, 127, None, None, None, keepdim)
    check_op(
        *(AFFINE, tensor(6, 8, 10), "ASYMMETRIC", block, *rest),
        target=target,
        tolerance=EXACT,
    )


def test_rows_at_the_edges(target: Target) -> None:
    rest = (None, -128, 127, None, None, None, True)
    for mapping in ("ASYMMETRIC", "SYMMETRIC"):
        x = tensor(values=EDGES)
        check_op(AFFINE, x, mapping, [1, 3], *rest, target=target, tolerance=EXACT)


def test_affine_refuses() -> None:
    rest = (None, -128, 127, None, None, None, False)
    shapes = [(1, 3), (1, 3)]
    x = tensor(1, 3, 8)
    refuse_op(AFFINE, x, "ODD", [1, 1, 8], *rest, match="must be one of ASYMMETRIC", out=shapes)
    for block in ([1, 3, 4], [1, 3, 1]):
        refuse_op(AFFINE, x, "ASYMMETRIC", block, *rest, match="must be neighbours", out=shapes)
    for block in ([8], [1, 1, 1, 8], [1, 1, 3], []):
        refuse_op(AFFINE, x, "ASYMMETRIC", block, *rest, match="must divide x", out=shapes)
    none = (None, 5, 5, None, None, None, False)
    refuse_op(AFFINE, x, "ASYMMETRIC", [1, 1, 8], *none, match="is empty", out=shapes)
    above = (None, 0, 15, None, None, None, False)
    match = "both sides of zero"
    refuse_op(AFFINE, x, "SYMMETRIC_NO_CLIPPING_ERR", [1, 1, 8], *above, match=match, out=shapes)


@pytest.mark.parametrize("bounds", [(-128, 127), (-127, 127), (0, 100)])
def test_per_tensor(bounds: tuple[int, int], target: Target) -> None:
    arguments = (*bounds, 1.1920929e-07, None)
    check_op(PER_TENSOR, tensor(3, "S", "T"), *arguments, oracle=per_tensor, target=target, tolerance=EXACT)
    for row in EDGES:
        x = tensor(values=row)
        check_op(PER_TENSOR, x, *arguments, oracle=per_tensor, target=target, tolerance=EXACT)


def test_per_tensor_of_many(target: Target) -> None:
    """Parts by many invocations, then the parts of parts."""
    x = tensor("S", 1009, 37, low=-2, high=5)
    live = {"S": (17, 1, 5)}
    arguments = (-128, 127, 1e-5, None)
    check_op(PER_TENSOR, x, *arguments, oracle=per_tensor, live=live, target=target, tolerance=EXACT)


@each("length", [1, 13, 300])
def test_per_token(length: int, target: Target) -> None:
    check_op(PER_TOKEN, tensor(2, "S", length), None, oracle=per_token, target=target, tolerance=EXACT)
    check_op(PER_TOKEN, tensor(values=EDGES), None, oracle=per_token, target=target, tolerance=EXACT)


@each_float
def test_float_types(dtype: str, target: Target) -> None:
    x = tensor(2, "S", 13)
    check_op(PER_TOKEN, x, None, oracle=per_token, dtype=dtype, target=target)
    check_op(PER_TENSOR, x, -128, 127, 1e-5, None, oracle=per_tensor, dtype=dtype, target=target)


def test_tokens_are_refused_in_a_scalar() -> None:
    refuse_op(PER_TOKEN, tensor(), None, match="a scalar has no rows", out=[(1,), (1,)])
