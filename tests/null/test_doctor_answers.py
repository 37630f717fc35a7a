"""The stored answers of `pteron doctor` are those of the float64 references, and its targets get simpler."""

from __future__ import annotations

import numpy as np
import pytest

from pteron.ops import Target
from pteron.tools.doctor.answers import compute, read
from pteron.tools.doctor.cases import built_in
from pteron.tools.doctor.diagnosis import simpler


def test_stored_answers_are_current() -> None:
    """If not: python scripts/doctor_answers.py."""
    pytest.importorskip("torch")
    cases = built_in()
    for case, stored in zip(cases, read(cases), strict=True):
        for found, expected in zip(stored, compute(case), strict=True):
            assert found.keys() == expected.keys(), case.name
            for id, value in expected.items():
                np.testing.assert_allclose(found[id], value, rtol=1e-6, atol=1e-6, err_msg=case.name)


def test_targets_get_simpler() -> None:
    gpu = Target(is_cpu=False, subgroup_size=32, shader_f16=True, packed_dots=False)
    tried = list(simpler(gpu))
    alone = [("f16",), ("subgroups",), ("route",)]
    assert tried == [*alone, ("f16", "subgroups"), ("f16", "subgroups", "route")]
    last = gpu.without(tried[-1])
    assert (last.shader_f16, last.subgroup_size, last.is_cpu) == (False, 0, True)
