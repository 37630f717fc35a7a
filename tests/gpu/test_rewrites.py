"""Every rewrite on a graph that has its pattern, with and without it: the same results, in fewer launches."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bits import assert_same_bits
from small_graphs import run

import pteron
from pteron.gpu import Device
from pteron.llm import LanguageModel
from pteron.llm.engine.batched_model import BatchedModel, BatchRow
from pteron.ops import Target
from pteron.ops.rewrite import REWRITES
from pteron.passes.rewrite import REWRITES_VARIABLE

pytestmark = pytest.mark.kernels

# A program that has the pattern of each rewrite.
PROGRAMS = {
    "silu_mul": "models/tiny_llama_q4",
    "linear_several": "models/tiny_llama_q4",
    "gated_linear": "models/tiny_llama_q4",
    "norm_linear": "models/tiny_llama_q4",
    "linear_add": "models/tiny_llama_q4",
    "shared_qparams": "models/tiny_llama_8da4w",
    "linear_dynamic": "models/tiny_llama_8da4w",
    "rope_slice": "models/tiny_llama_q4",
    "rope_sdpa": "models/tiny_qwen3_fp32",
    "norm_rope_sdpa": "models/tiny_qwen3_fp32",
    "linear_rope_sdpa": "models/tiny_llama_q4",
    "attention_linear": "models/tiny_llama_q4",
    "convolution_add": "programs/vision",
    "convolution_bounds": "programs/vision",
    "convolution_activation": "programs/vision",
}
# And one over rows of many sequences, which a program of one has by `passes.batched`.
IN_ROWS = {"rope_attend_rows": "models/tiny_llama_q4"}
# Those whose parts are launched as before where there are no subgroups.
BY_SUBGROUPS = {"gated_linear", "norm_linear", "linear_rope_sdpa", "attention_linear"}


def run_in_rows(off: str, path: Path, device: Device) -> tuple[np.ndarray, int]:
    """The logits of three sequences at their third token without some rewrites, and the launches of it."""
    with pytest.MonkeyPatch.context() as patch, pteron.load(path, device=device) as program:
        patch.setenv(REWRITES_VARIABLE, off)
        batched = BatchedModel(LanguageModel(program), 3)
        tokens = np.array([[5, 9, 200], [31, 7, 11], [400, 2, 3]])
        for position, step in enumerate(tokens.T):
            logits = batched.logits([BatchRow(slot, position, int(token)) for slot, token in enumerate(step)])
        plan = batched.session.make_plan((np.zeros(3, np.int32), 3), plain=True)
        batched.close()
        return logits, len(plan.launches)


@cache
def run_with_all(path: Path, device: Device, target: Target) -> tuple[list[Any], int]:
    return run(list(REWRITES), path, device, target)


def test_every_rewrite_has_a_program() -> None:
    elsewhere = {"attention", "linear_activation", "dense_add", "dense_several"}  # test_encoder_rewrites.py
    elsewhere |= {"gated_experts", "experts_mlp", "norm_experts", "experts_add"}  # llm/test_expert_models.py
    elsewhere |= {"linear_rows", "silu", "hardsigmoid", "activation_casts"}  # test_rewrites_live.py
    elsewhere |= {"convolution_padding", "convolution_factors"}  # test_rewrites_live.py
    assert PROGRAMS.keys() | IN_ROWS.keys() | elsewhere == REWRITES.keys()


@pytest.mark.long(every=5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_with_and_without(name: str, models: Path, device: Device, target: Target) -> None:
    path = models.parent / f"{PROGRAMS[name]}.pte"
    with_it, fewer = run_with_all(path, device, target)
    without, more = run([other for other in REWRITES if other != name], path, device, target)
    assert fewer < more or (fewer == more and name in BY_SUBGROUPS)
    for a, b in zip(with_it, without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("name", IN_ROWS)
def test_with_and_without_in_rows(name: str, models: Path, device: Device) -> None:
    path = models.parent / f"{IN_ROWS[name]}.pte"
    with_it, fewer = run_in_rows("", path, device)
    without, more = run_in_rows(f"-{name}", path, device)
    assert fewer < more
    np.testing.assert_allclose(with_it, without, atol=1e-5)


def test_int8_is_made_of_the_same_bits(models: Path, device: Device, target: Target) -> None:
    """Where activations become int8, a difference in the last bit could be one of a whole step. Norms apart,
    which sum in another order elsewhere, nothing is rounded otherwise."""
    path = models / "tiny_llama_8da4w.pte"
    with_them, _ = run(
        ["silu_mul", "shared_qparams", "linear_add", "rope_slice", "rope_sdpa"], path, device, target
    )
    without, _ = run([], path, device, target)
    for a, b in zip(with_them, without, strict=True):
        assert_same_bits(a, b, device)
