"""The stored answers of `pteron doctor` are those of the float64 references, its targets get simpler, and its
exit code says whether programs are right from now on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from pteron.tools.doctor.report import Diagnosis, KernelCheck, Trial, checks_of, doctor_lines

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


def diagnosis(**found: Any) -> Diagnosis:
    about: dict[str, Any] = {
        "subject": "operators",
        "adapter": "a GPU",
        "kind": "DiscreteGPU",
        "backend": "Vulkan",
        "driver": "1.0",
        "library": "wgpu 1.0",
        "features": (),
        "subgroup_size": 32,
        "limits": {},
        "probes": Probes(0),
        "loop_limit_expected": 0,
        "versions": {},
        "platform": "Linux",
        "kernels": (RIGHT,),
        "trials": (),
        "without": (),
        "exceptions": (),
        "file": "exceptions.json",
        "is_written": False,
        "seconds": 1.0,
    }
    return Diagnosis(**about | found)


def test_what_a_diagnosis_says() -> None:
    limits = {"max-buffer-size": 4096, "max-bind-groups": 4, "min-storage-buffer-binding-size": 1}
    limits |= {"max-compute-invocations-per-workgroup": 256, "max-storage-buffers-per-shader-stage": 8}
    timed = Probes(70, submission_seconds=2e-5, launch_seconds=3e-6, bytes_per_second=2e9)
    timed = replace(timed, operations_per_second=5e9, host_bytes_free=10**9)
    lines = [" ".join(line.split()) for line in str(diagnosis(limits=limits, probes=timed)).splitlines()]
    assert lines[5:] == [
        "features none; lacks shader-f16, subgroup, timestamp-query",
        "subgroups of 32",
        "limits buffer-size 4,096, compute-invocations-per-workgroup 256",
        "storage-buffers-per-shader-stage 8",
        "loops end after 70 iterations",
        "timing submission 20 µs, launch 3 µs, 2.0 GB/s, 5.0 GFLOP/s in f32",
        "memory 1.0 GB free on the host",
        "",
        "all are right: 1 kernel of operators, 4 comparisons, 1.00 s",
        "loops end after 70 iterations; plans assume no limit",
        "Please send all of this as an issue: https://github.com/pteron/pteron/issues/new/choose",
    ]
    wrong = replace(WRONG, where="op in case", reason="too far")
    trials = Trial(("f16",), ("sum",)), Trial(("f16", "subgroups"), ())
    report = diagnosis(kernels=(RIGHT, wrong), trials=trials, without=("f16", "subgroups"))
    lines = [line.strip() for line in doctor_lines(report)]
    found = lines[lines.index("") + 1 :]
    assert found[:7] == [
        *(
            "1 wrong kernel among 2 kernels of operators, 8 comparisons, 1.00 s",
            "sum: 2 of 4 comparisons wrong",
        ),
        *("first in op in case", "too far", "without f16: wrong: sum"),
        "without f16, subgroups: all kernels are right",
        "`pteron doctor --write` makes programs on this adapter do without f16, subgroups",
    ]
    assert not any("programs on this adapter do without:" in line for line in found)
    written = "\n".join(doctor_lines(replace(report, is_written=True, exceptions=("f16", "subgroups"))))
    assert "--write" not in written
    assert "programs on this adapter do without: f16, subgroups (exceptions.json)" in written
    assert "no simpler route is right" in "\n".join(doctor_lines(replace(report, without=None)))


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
    report = diagnosis(
        probes=Probes(loops[0]),
        loop_limit_expected=loops[1],
        kernels=(RIGHT, kernel),
        without=without,
        exceptions=exceptions,
    )
    monkeypatch.setattr("pteron.tools.doctor.doctor", lambda *_, **__: report)
    assert main(["doctor"]) == code
    assert ("Please send all of this" in capsys.readouterr().out) == (
        kernel is WRONG or (kernel is RIGHT and code == 1)
    )
