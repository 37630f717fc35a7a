"""The stored answers of `pteron doctor` are those of the float64 references, its targets get simpler, and its
exit code says whether programs are right from now on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kernel_files import FILES
from targets import TARGETS

from pteron.cli import main
from pteron.gpu.exceptions import exceptions_file, read_exceptions, write_exceptions
from pteron.ops import Target
from pteron.ops.target import MATRIX
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.tools.accuracy import Errors
from pteron.tools.compare.report import NodeResult, Verdict
from pteron.tools.doctor.answers import compute, read
from pteron.tools.doctor.cases import built_in
from pteron.tools.doctor.diagnosis import simpler
from pteron.tools.doctor.probes import Probes
from pteron.tools.doctor.replay import Checked
from pteron.tools.doctor.report import Diagnosis, KernelCheck, checks_of

# Kernels of very long rows, of batches and LoRA, of rings and int8 caches, and of rare operators.
NOT_LAUNCHED = (
    "convolution_pack distances embedding_4bit "
    "group_rows lora_down lora_rows lora_up norm_write q4_merge_rows q4_quantize "
    "reciprocals softmax_write write_int8 write_rows"
)


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


def test_cases_plan_for_every_kind_of_device() -> None:
    """Together they launch most kernels of these families."""
    launched: set[str] = set()
    matrices = replace(TARGETS["Vulkan, subgroups"], shader_f16=True, matrices=(MATRIX,))
    uniform = replace(TARGETS["software"], broadcasts=True)
    small = replace(uniform, uniform_bytes_max=1 << 13)
    for target in (*TARGETS.values(), matrices, uniform, small):
        for case in built_in():
            compiled = Compiled(prepare(case.graph), target)
            for call in case.calls:
                shapes = tuple(each.shape if isinstance(each, np.ndarray) else None for each in call)
                pairs = zip(case.graph.inputs, call, strict=True)
                values = {value.id: given for value, given in pairs if isinstance(given, int)}
                plan = compiled.plan(shapes, values)
                launched |= {launch.module.kernel.name for launch in plan.launches}
                for launch in plan.launches:
                    sizes = [each.bytes for each in launch.module.bindings if each.access == "uniform"]
                    assert max(sizes, default=0) <= target.uniform_bytes_max, launch.module.kernel
                    assert math.prod(launch.module.workgroup) <= target.invocations_max
    folders = "attention convolution elementwise linear norm pool quantized reduce rope"
    common = {name for name, path in FILES.items() if path.parent.name in folders.split()}
    assert common - launched == {*NOT_LAUNCHED.split()}


def test_exceptions_are_of_one_adapter_with_one_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    adapter = ("wgpu-native", "a GPU", "Vulkan", "driver 1")
    assert read_exceptions(*adapter) == ()
    path = exceptions_file(*adapter)
    write_exceptions(path, ("subgroups", "f16"), {"adapter": "a GPU"})
    assert read_exceptions(*adapter) == ("f16", "subgroups")  # the most special first
    for place in range(4):
        assert read_exceptions(*(name + "x" * (index == place) for index, name in enumerate(adapter))) == ()
    for _ in range(2):
        write_exceptions(path, (), {})
        assert not path.exists()


def row(kernels: tuple[str, ...], *, wrong: bool = False, error: float = 0.5, ran: str = "op") -> NodeResult:
    verdict = Verdict.DEPARTS if wrong else Verdict.WITHIN
    errors = Errors(0.0, 0.0, 0.0, 1.0, 0.0, error)
    return NodeResult(
        "S=7", 0, (0,), (ran,), ran, "", verdict, errors, "too far" if wrong else "", "", kernels
    )


def test_which_kernel_is_blamed() -> None:
    """One that was wrong alone; else those that were never right; else all."""
    found = checks_of(
        [
            Checked("alone", (row(("a",), wrong=True, error=9.0), row(("a", "b"), wrong=True))),
            Checked("never right", (row(("c",)), row(("c", "d"), wrong=True, error=3.0))),
            Checked("all", (row(("e",)), row(("f",), error=0.75), row(("e", "f"), wrong=True))),
            Checked("no kernel", (row((), wrong=True),)),
        ]
    )
    seen = [(check.kernel, check.checks, check.wrong, check.of_tolerance) for check in found]
    assert seen == [
        ("a", 2, 2, 9.0),
        ("(not known)", 1, 1, 0.5),
        ("d", 1, 1, 3.0),
        ("e", 2, 1, 0.5),
        ("f", 2, 1, 0.75),
        ("c", 1, 0, 0.5),
    ]
    assert (found[0].where, found[0].reason) == ("op in alone at S=7", "too far")
    assert (found[-1].where, found[-1].reason) == ("", "")


RIGHT, WRONG = KernelCheck("rope", ("rope",), 4, 0, 0.1), KernelCheck("sum", ("sum",), 4, 2, 9.0)
NO_TRIAL: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("kernel", "without", "exceptions", "loops", "code"),
    [
        (RIGHT, NO_TRIAL, (), (0, 0), 0),
        (WRONG, ("subgroups",), (), (0, 0), 1),  # a route is right, but --write was not given
        (WRONG, ("subgroups",), ("subgroups",), (0, 0), 0),
        (WRONG, ("f16", "subgroups"), ("subgroups",), (0, 0), 1),  # an earlier --write wrote less
        (WRONG, None, (), (0, 0), 1),  # no route is right
        (RIGHT, NO_TRIAL, (), (100, 0), 1),  # loops end before plans assume
        (RIGHT, NO_TRIAL, (), (100, 101), 1),
        (RIGHT, NO_TRIAL, (), (100, 100), 0),
        (RIGHT, NO_TRIAL, (), (0, 100), 0),
    ],
)
def test_the_exit_code(
    kernel: KernelCheck,
    without: tuple[str, ...] | None,
    exceptions: tuple[str, ...],
    loops: tuple[int, int],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Diagnosis(
        subject="operators",
        adapter="a GPU",
        kind="DiscreteGPU",
        backend="Vulkan",
        driver="1.0",
        library="wgpu 1.0",
        features=(),
        subgroup_size=32,
        limits={},
        probes=Probes(loops[0]),
        loop_limit_expected=loops[1],
        versions={},
        platform="Linux",
        kernels=(RIGHT, kernel),
        trials=(),
        without=without,
        exceptions=exceptions,
        file="exceptions.json",
        is_written=False,
        seconds=1.0,
    )
    monkeypatch.setattr("pteron.tools.doctor.doctor", lambda *_, **__: report)
    assert main(["doctor"]) == code
    assert ("Please send all of this" in capsys.readouterr().out) == (
        kernel is WRONG or (kernel is RIGHT and code == 1)
    )
