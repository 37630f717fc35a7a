"""`pteron doctor` finds a kernel that computes something else, names it, and routes around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from broken_kernel import broken

import pteron
from pteron import Device
from pteron.cli import main
from pteron.gpu.adapters import adapters
from pteron.gpu.exceptions import read_exceptions
from pteron.ops import Target
from pteron.tools import Progress, silent
from pteron.tools.compare.report import NodeResult, Verdict
from pteron.tools.doctor import diagnosis
from pteron.tools.doctor.probes import loop_limit
from pteron.tools.doctor.replay import BuiltIn, Checked
from pteron.tools.doctor.report import doctor_lines

Q4 = "et_vk.linear_q4gsw.default"
NAMES = ("et_vk.apply_rotary_emb.default", Q4, "decoder layer, 4-bit")
# Wrong by half a percent; only plans with values passed among lanes launch it.
SUM = "sums[t][c] += {}scale[c] * part[t][c];"
WINDOWS = ("q4_uniform", SUM.format(""), SUM.format("1.005 * "))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    monkeypatch.setattr(diagnosis, "BuiltIn", partial(BuiltIn, NAMES))


@pytest.fixture
def software(device: Device) -> Device:
    if not device.target.broadcasts:
        pytest.skip("the broken kernel is launched on software adapters with subgroups")
    return device


def test_right_kernels_are_right(device: Device) -> None:
    report = pteron.doctor(device=device, timing=False)
    assert report.is_healthy
    assert not report.wrong
    assert not report.trials
    assert report.without == ()
    assert {check.kernel for check in report.kernels} >= {"norm", "rope"}
    assert all(check.of_tolerance < 1 for check in report.kernels)
    assert any("all are right" in line for line in doctor_lines(report))


@pytest.mark.long
@pytest.mark.parametrize("parts", [(), ("route",), ("subgroups",), ("packed-dots",)], ids=str)
def test_the_whole_set_is_right(device: Device, parts: tuple[str, ...]) -> None:
    found = BuiltIn().check(device, device.target.without(parts))
    assert [row.reason for each in found for row in each.wrong] == []
    unchecked = [row for each in found for row in each.rows if row.verdict is Verdict.UNCHECKED]
    assert not unchecked


@pytest.mark.long
def test_a_wrong_kernel_is_found_named_and_routed_around(software: Device, models: Path) -> None:
    path, inputs = models / "tiny_llama_q4.pte", (np.array([[5, 9, 200, 31, 7]]), np.array([0]))
    with pteron.load(path, device=software) as program:
        expected = np.asarray(program["forward"](*inputs)[0])
    with broken(*WINDOWS):
        report = pteron.doctor(device=software, timing=False, write=True)
        assert [check.kernel for check in report.wrong] == ["q4_uniform"]
        assert Q4 in report.wrong[0].where
        assert "exceed the tolerance" in report.wrong[0].reason
        assert report.trials[-1].is_right
        assert report.without == report.exceptions == ("subgroups",)
        assert report.is_healthy  # from now on

        adapter = adapters()[software.adapter.index]
        assert adapter.exceptions == ("subgroups",)
        assert not adapter.target.broadcasts
        for used, is_right in ((Device(adapter), True), (software, False)):
            with pteron.load(path, device=used) as program:
                error = np.abs(np.asarray(program["forward"](*inputs)[0]) - expected).max()
            assert (error < 1e-4 * np.abs(expected).max()) == is_right
    again = pteron.doctor(device=software, timing=False, write=True)
    assert again.is_healthy
    assert not Path(report.file).exists()


@pytest.mark.long
def test_a_kernel_of_every_route_has_no_way_around(device: Device) -> None:
    with broken("rope", "-(x.y * a.y)", "x.y * a.y"):
        report = pteron.doctor(device=device, timing=False, write=True)
    assert [check.kernel for check in report.wrong] == ["rope"]
    assert report.without is None
    assert not report.is_healthy
    assert not report.is_written
    shown = report._repr_html_()
    assert all(text in str(report) and text in shown for text in ("no simpler route is right", "/issues/new"))


class Subject:
    """Two kernels that run; each is wrong on some targets."""

    name = "a subject"

    def __init__(self, is_wrong: Callable[[str, Target], bool]) -> None:
        self._is_wrong = is_wrong
        self.targets: list[Target] = []

    def check(
        self, device: Device, target: Target, only: Sequence[str] | None = None, progress: Progress = silent
    ) -> list[Checked]:
        self.targets.append(target)
        names = [name for name in ("first", "second") if only is None or name in only]
        return [Checked(name, (self._row(name, target),)) for name in names]

    def _row(self, name: str, target: Target) -> NodeResult:
        verdict = Verdict.DEPARTS if self._is_wrong(name, target) else Verdict.WITHIN
        return NodeResult("", 0, (0,), (), name, "", verdict, kernels=(name,))


def test_a_route_is_right_where_everything_is(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without packed dots the first kernel is right, but then the second is wrong, on this kind of device."""

    def is_wrong(name: str, target: Target) -> bool:
        is_first = name == "first"
        return (
            target.packed_dots
            if is_first
            else not target.packed_dots and target.is_cpu == device.target.is_cpu
        )

    subject = Subject(is_wrong)
    monkeypatch.setattr(diagnosis, "BuiltIn", lambda: subject)
    adapter = replace(device.adapter, exceptions=("packed-dots",))  # as an earlier run found
    with closing(Device(adapter)) as used:
        assert not used.target.packed_dots
        report = pteron.doctor(device=used, timing=False)
        assert subject.targets[0].packed_dots, "the device is checked with all of its parts"
        tried = {trial.without: trial.wrong for trial in report.trials}
        assert tried["packed-dots",] == ("second",)
        assert tried["route",] == ("first",)
        assert report.trials[-1].is_right
        assert {"packed-dots", "route"} <= {*report.trials[-1].without}
        assert report.without == report.trials[-1].without
        assert (report.exceptions, report.is_written) == (("packed-dots",), False)
        assert not report.is_healthy
        assert not Path(report.file).exists()
        assert pteron.doctor(device=used, timing=False, write=True).exceptions == report.without
        assert Path(report.file).exists()


def test_a_program_is_checked_beside_pytorch(programs: Path, device: Device) -> None:
    pytest.importorskip("torch")
    report = pteron.doctor(programs / "mlp_dynamic.pte", device=device, timing=False)
    assert report.is_healthy
    assert sum(check.checks for check in report.kernels) > len(report.kernels)  # at several sizes


@pytest.mark.long
def test_a_language_model_is_checked(models: Path, device: Device) -> None:
    pytest.importorskip("torch")
    with broken("norm", "/ f32(params.length) + params.eps", "/ f32(params.length - 1u) + params.eps"):
        report = pteron.doctor(models / "tiny_llama_q4.pte", device=device, timing=False)
    assert "norm" in {check.kernel for check in report.wrong}


def test_the_limit_of_loops_is_found(device: Device) -> None:
    assert loop_limit(device) == device.adapter.loop_max


def test_the_command_prints_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--no-timing"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["driver"]
    assert report["limits"]["max-buffer-size"] > 0
    assert report["versions"]["pteron"] == pteron.__version__


def test_damaged_files_count_as_none(device: Device) -> None:
    report = pteron.doctor(device=device, timing=False)
    adapter = device.adapter
    about = adapter.library.name, adapter.name, adapter.backend, adapter.driver
    for text in ("", "[]", '{"without": null}', '{"without": ["nothing"]}', "\xff"):
        Path(report.file).parent.mkdir(exist_ok=True)
        Path(report.file).write_text(text, "utf-8")
        assert read_exceptions(*about) == ()
