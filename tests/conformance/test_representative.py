"""A case of every operator of ExecuTorch's WebGPU suite; and a recipe of each suite, exported here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.record import Case, read_cases, write_cases
from conformance.representative import names, unpack
from conformance.run import run_case
from conformance.suites import SUITES


def first_case(name: str, folder: Path) -> Case:
    (case,) = read_cases(unpack(name, folder))
    return case


@pytest.mark.long(every=3)
@pytest.mark.parametrize("name", names())
def test_recorded(name: str, tmp_path: Path) -> None:
    result = run_case(first_case(name, tmp_path), None)
    assert (result.outcome, result.cause) == ("pass", "")


def test_wrong_answers_are_found(tmp_path: Path) -> None:
    case = first_case(next(name for name in names() if "/add_" in name), tmp_path)
    *others, last = case.calls
    (expected,) = last.expected
    beside = expected.copy()
    beside.flat[-1] += 10 * (last.absolute + last.relative * abs(beside.flat[-1]))
    strange = [np.full_like(expected, value) for value in (np.nan, np.inf)]
    for answer in (beside, *strange, expected.astype(np.int32), expected[:1]):
        result = run_case(replace(case, calls=(*others, replace(last, expected=(answer,)))), None)
        assert result.outcome == "wrong"
        assert "output 0 at inputs" in result.cause


def test_answers_that_are_no_numbers(tmp_path: Path) -> None:
    """They are right where they are expected."""
    case = first_case(next(name for name in names() if "/add_" in name), tmp_path)
    call = case.calls[0]
    for value in (np.nan, np.inf, -np.inf):
        inputs = tuple(np.full_like(array, value) for array in call.inputs)
        expected = tuple(np.full_like(array, value) for array in call.expected)
        result = run_case(replace(case, calls=(replace(call, inputs=inputs, expected=expected),)), None)
        assert (result.outcome, result.difference) == ("pass", 0.0)


def test_programs_that_cannot_run_are_refused(tmp_path: Path) -> None:
    case = first_case(names()[0], tmp_path)
    call = case.calls[0]
    short = replace(case, calls=(replace(call, inputs=call.inputs[1:]),))
    result = run_case(short, None)
    assert result.outcome == "refused"
    assert "inputs" in result.cause


@pytest.mark.long(every=6)
@pytest.mark.export
@pytest.mark.filterwarnings("ignore")  # of exporters, about themselves
@pytest.mark.parametrize(
    ("suite", "recipe", "operator"),
    [
        ("webgpu", "abs/mat", "aten.abs.default"),
        ("live", "amax/nodim_2d", "aten.amax.default"),
        ("vulkan", "TestVulkanBackend/test_vulkan_backend_abs", "aten.abs.default"),
        ("generic", "operators/test_abs_dtype[float32]", "aten.abs.default"),
        ("forms", "aten.mm.default/f32", "aten.mm.default"),
    ],
)
def test_exported_here(suite: str, recipe: str, operator: str, tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    write_cases(tmp_path, SUITES[suite].record(recipe))
    results = [run_case(case, None) for case in read_cases(tmp_path)]
    assert results
    for result in results:
        assert (result.outcome, result.cause) == ("pass", "")
        assert result.operators is not None
        assert operator in result.operators
    assert suite != "live" or all(result.shapes >= 3 and result.is_dynamic for result in results)
