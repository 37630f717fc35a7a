"""Products with 4-bit weights and what surrounds them against float64, by one launch or by the parts' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from check import check_op, floats
from fused_cases import CASES, DYNAMIC_ADD, check
from quantized_cases import packed
from small_graphs import run

from pteron import Device
from pteron.ops import Target
from pteron.ops.rewrite import REWRITES
from pteron.reference.products import linear_dynamic_q4

pytestmark = pytest.mark.kernels

OURS = {"linear_several", "gated_linear", "norm_linear", "linear_add"}


cases = pytest.mark.parametrize(("sizes", "options"), CASES, ids=str)


@pytest.mark.long(every=18)
@cases
def test_fused(sizes: tuple[int, ...], options: dict[str, Any], target: Target) -> None:
    check(target, *sizes, **options)


@pytest.mark.long(every=11)
@cases
def test_fused_by_subgroups(sizes: tuple[int, ...], options: dict[str, Any], few: Target) -> None:
    check(few, *sizes, **options)


@pytest.mark.long(every=2)
@floats
def test_float_types(dtype: str, few: Target) -> None:
    tolerance = 5e-6 if dtype == "f32" else 5e-3
    check(few, 64, 13, 13, norm=True, gated=True, dtype=dtype, tolerance=tolerance)


def dynamic_add(*arguments: Any) -> Any:
    *rest, residual = arguments
    return linear_dynamic_q4(*rest).reshape(residual.shape) + residual


@pytest.mark.long(every=2)
@pytest.mark.parametrize("by_subgroups", [False, True])
def test_a_residual_of_int8_activations(
    by_subgroups: bool, target: Target, request: pytest.FixtureRequest
) -> None:
    arguments = (
        tensor("M", 64, low=-1, high=1),
        tensor("M", low=2.0**-7, high=2.0**-7),
        tensor("M", dtype="i8", low=-20, high=20),
        *(weight(values=packed(13, 64), dtype="u8"), weight(2, 16, dtype="i32", low=0, high=9)),
        *(weight(2, 16, low=0.01, high=0.02), 32, weight(16), tensor(1, "M", 13)),
    )
    chosen = request.getfixturevalue("few") if by_subgroups else target
    live = {"M": (4, 1, 2)} if by_subgroups else {"M": (4, 1)}
    check_op(DYNAMIC_ADD, *arguments, oracle=dynamic_add, live=live, target=chosen, tolerance=1e-4)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("name", ["tiny_llama_q4", "tiny_llama_q4_fp16", "tiny_llama_q4_full"])
def test_a_model_by_subgroups(name: str, models: Path, device: Device, few: Target) -> None:
    """With all rewrites, and without ours: the same logits, in fewer launches."""
    path = models / f"{name}.pte"
    with_them, fewer = run(list(REWRITES), path, device, few)
    without, more = run([other for other in REWRITES if other not in OURS], path, device, few)
    assert fewer < more
    for a, b in zip(with_them, without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 if name != "tiny_llama_q4_fp16" else 1e-2)


def test_without_one_of_them(models: Path, device: Device, few: Target) -> None:
    path = models / "tiny_llama_q4.pte"
    with_it, fewer = run(list(REWRITES), path, device, few)
    for off in sorted(OURS):
        without, more = run([other for other in REWRITES if other != off], path, device, few)
        assert fewer < more, off
        for a, b in zip(with_it, without, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5, err_msg=off)
