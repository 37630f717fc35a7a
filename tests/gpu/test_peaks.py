"""The greatest result of every block of columns, left by the product that makes them, and drawn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import Leaf, TensorArgument, leaves, tensor, weight
from check import check_op, floats
from fused_cases import PEAKS, factors, memory, product
from one_operator import OneOperator

import pteron
from pteron import Device
from pteron.dtypes import DType
from pteron.families.quantized import peaks
from pteron.gpu import Recording
from pteron.host.tensors import View
from pteron.llm import LanguageModel, Sampler, Sampling, generate_step
from pteron.ops import Target
from pteron.passes.rewrite import REWRITES_VARIABLE
from pteron.plan import PlanBuffer

pytestmark = pytest.mark.kernels

LIVE = {"M": (33, 1, 4, 2, 3)}
INFINITY = float("inf")


@pytest.mark.long(every=8)
@pytest.mark.parametrize("is_normed", [True, False])
@pytest.mark.parametrize("columns", [1, 67, 516])
def test_results(columns: int, is_normed: bool, target: Target) -> None:
    (matrix,), (scales,) = factors(96, columns)
    norm = (weight(96, low=0.5, high=2), 1e-5) if is_normed else (None, 0.0)
    arguments = tensor(1, "M", 96), *norm, matrix, scales, weight(columns + 2), 32, 4, None, memory()
    check_op(PEAKS, *arguments, oracle=product, live=LIVE, tolerance=5e-6, target=target)


@pytest.mark.long(every=2)
@floats
def test_results_by_subgroups(dtype: str, few: Target) -> None:
    (matrix,), (scales,) = factors(96, 67)
    arguments = tensor(1, "M", 96), None, 0.0, matrix, scales, None, 32, 4, None, memory()
    tolerance = 5e-6 if dtype == "f32" else 2e-2
    check_op(PEAKS, *arguments, oracle=product, live=LIVE, dtype=dtype, tolerance=tolerance, target=few)


def left(results: np.ndarray, target: Target, rows: int = 1) -> tuple[np.ndarray, int] | None:
    """What is left of each block by a product that makes these results, and how many columns a block has."""
    columns = len(results)
    (matrix,), _ = factors(64, columns)
    zeros = weight(values=np.zeros((2, -(-columns // 4) * 4), np.float32))
    x, bias = tensor(1, rows, 64), weight(values=results.astype(np.float32))
    arguments = x, None, 0.0, matrix, zeros, bias, 32, 4, None, memory()
    random = np.random.default_rng(0)
    given: dict[Leaf, Any] = {
        leaf: leaf.draw({}, "f32", random) for leaf in leaves(arguments) if isinstance(leaf, TensorArgument)
    }
    operator = OneOperator(PEAKS, arguments, given, [((1, rows, columns), DType.F32)], target)
    (out,) = operator.run(given)
    np.testing.assert_array_equal(out, np.broadcast_to(results, out.shape).astype(np.float32))
    recording, numbers = operator.session.find_recording([given[x]])
    (view,) = operator.session.outputs(recording, numbers, operator.states)
    assert isinstance(view, View)
    if view.peaks is None:
        operator.close()
        return None
    data = operator.device.read(view.peaks.buffer, view.peaks.nbytes)
    operator.close()
    declared = dict(recording.plan.launches[-1].module.kernel.given)
    block = int(declared["COLUMNS"]) * int(declared["BUNDLES"]) * int(declared["ROUNDS"])
    return np.frombuffer(data, np.uint32).reshape(view.peaks.shape), block


def check_left(results: np.ndarray, target: Target) -> None:
    found = left(results, target)
    assert found is not None
    blocks, size = found
    assert len(blocks) == -(-len(results) // size)
    for index, (bits, column, again, total) in enumerate(blocks):
        own = results[index * size : (index + 1) * size].astype(np.float32)
        limit = np.finfo(np.float32).max
        numbers = np.where(np.isnan(own), -limit, np.clip(own, -limit, limit)).astype(np.float64)
        assert bits == again == np.float32(numbers.max()).view(np.uint32)
        assert column == index * size + numbers.argmax()  # the first of equal ones
        expected = np.exp(numbers - numbers.max()).sum() if not np.isnan(own).any() else np.nan
        np.testing.assert_allclose(total.view(np.float32), expected, rtol=1e-5)


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 67, 517, 1000])
def test_the_greatest_of_each_block(columns: int, few: Target) -> None:
    check_left(np.random.default_rng(columns).normal(0, 9, columns), few)


def test_equal_and_unusual_results(few: Target) -> None:
    results = np.zeros(300)
    check_left(results, few)
    results[[7, 40, 41, 150]] = INFINITY, -INFINITY, 5, 5
    check_left(results, few)
    check_left(np.full(100, -INFINITY), few)
    results[[20, 200]] = np.nan
    check_left(results, few)
    check_left(np.full(100, np.nan), few)


def test_only_of_one_row_and_few_blocks(few: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    results = np.arange(100.0)
    assert left(results, few, rows=2) is None
    monkeypatch.setattr(peaks, "BLOCKS_MAX", 2)
    assert left(results, few) is None


def test_no_more_blocks_than_their_memory_holds(few: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file may have them that is not ours."""
    peaks_of = Recording.peaks

    def too_many(recording: Recording, buffer: PlanBuffer) -> tuple[PlanBuffer, int] | None:
        found = peaks_of(recording, buffer)
        return (found[0], peaks.BLOCKS_MAX + 1) if found else None

    monkeypatch.setattr(Recording, "peaks", too_many)
    assert left(np.arange(100.0), few) is None


@pytest.fixture
def device_of_subgroups(own_subgroups: Target, device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(device, "target", own_subgroups)
    monkeypatch.setattr(peaks, "COLUMNS_MIN", 64)
    return device


def drawn(device: Device, path: Path, sampling: Sampling, count: int = 50) -> tuple[list[Any], int]:
    """The tokens of a model, and of how many numbers of blocks peaks were drawn from."""
    program = pteron.load(path, device=device)
    model = LanguageModel(program)
    sampler = Sampler(device, model.vocabulary, sampling, model.logits_dtype)
    found = list(generate_step(model, sampler, [5, 17, 99, 250, 3], count))
    from_peaks = len(sampler._of_peaks)
    sampler.close()
    program.close()
    return found, from_peaks


@pytest.mark.long(every=2)
@pytest.mark.rewrites
@pytest.mark.parametrize("name", ["tiny_llama_q4", "tiny_llama_q4_fp16"])
def test_the_tokens_of_a_model(
    name: str, models: Path, device_of_subgroups: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, from_peaks = drawn(device_of_subgroups, models / f"{name}.pte", Sampling())
    assert from_peaks == (0 if name.endswith("fp16") and device_of_subgroups.target.shader_f16 else 1)
    monkeypatch.setenv(REWRITES_VARIABLE, "-linear_peaks")
    expected, from_peaks = drawn(device_of_subgroups, models / f"{name}.pte", Sampling())
    assert from_peaks == 0
    assert [each.token for each in found] == [each.token for each in expected]
    np.testing.assert_allclose(
        [each.logprob for each in found], [each.logprob for each in expected], atol=1e-5
    )


@pytest.mark.long(every=2)
@pytest.mark.rewrites
@pytest.mark.parametrize("sampling", [Sampling(0.7, seed=3), Sampling(repetition_penalty=1.3)])
def test_other_samplings_look_at_all_logits(
    sampling: Sampling, models: Path, device_of_subgroups: Device
) -> None:
    assert drawn(device_of_subgroups, models / "tiny_llama_q4.pte", sampling, 5)[1] == 0
