"""Estimates follow from plans and from the rates of a GPU; what cannot fit is refused."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from plan_figures import PROGRAMS

from pteron.cli import main
from pteron.errors import InputError, OutOfMemory
from pteron.names.kinds import recognise
from pteron.tools.estimate import Gpu, GpuEstimate, estimate, estimates, find_gpus, gpus, known_gpus
from pteron.tools.estimate.estimates import launch_times
from pteron.tools.estimate.gpus import gpu_of_adapter
from pteron.tools.inspect.figures import program_figures
from pteron.tools.local_adapter import LocalAdapter
from pteron.tools.profile.work import LaunchWork

(H200,) = find_gpus("H200")
MODEL = PROGRAMS["tiny_llama_q4"]


def test_the_table_has_rates_and_sources() -> None:
    gpus = known_gpus()
    assert len({gpu.name for gpu in gpus}) == len(gpus)
    for gpu in gpus:
        assert gpu.source
        assert gpu.memory_bytes
        assert 1e10 < gpu.bytes_per_second < 1e13
        assert 1e12 < gpu.operations_per_second <= (gpu.f16_per_second or 0) * 1.01 < 3e14
    assert gpu_of_adapter("NVIDIA H200 (DiscreteGPU, Vulkan)") is H200
    assert gpu_of_adapter("Apple M1 Max (IntegratedGPU, Metal)") is find_gpus("m1 max")[0]
    assert gpu_of_adapter("llvmpipe (LLVM 15)") is None
    assert [gpu.name for gpu in find_gpus("Apple M1")] == ["Apple M1"]
    with pytest.raises(InputError, match=r"no GPU of the table is named 'voodoo'; there are NVIDIA H200"):
        find_gpus("voodoo")


def test_memory_and_launches_are_those_of_plans() -> None:
    (found,) = estimate(MODEL, [H200], prefill=[31], decode=[7]).gpus
    planned = program_figures(MODEL, H200.target, traffic=False)["forward, at the smallest shapes"]
    assert (found.weights, found.states) == (planned.weights, planned.states)
    prefill, decode = found.calls
    assert decode.launches == planned.launches
    assert (prefill.what, prefill.tokens) == ("prefill of 31 tokens", 31)
    assert prefill.operations > 20 * decode.operations
    assert found.fits


def test_times_follow_the_rates() -> None:
    moving, computing = LaunchWork("a", 10**9, 0, None), LaunchWork("b", 10**3, 0, 1e12)
    floor, likely = launch_times(H200, moving)
    assert floor == pytest.approx(10**9 / 4.6e12 + 1.9e-6)
    assert floor < likely < 2 * floor
    assert launch_times(H200, computing)[0] == pytest.approx(1e12 / 63.7e12 + 1.9e-6)
    slow = replace(H200, bytes_per_second=1e12)
    assert launch_times(slow, moving)[1] > 4 * likely
    assert launch_times(slow, computing) == launch_times(H200, computing)


def test_what_fits_leaves_a_twentieth_free() -> None:
    def fits(memory: int, of_gpu: int | None) -> bool | None:
        return GpuEstimate("a GPU", memory, of_gpu, 0, 0, (), "", is_measured=False).fits

    assert [fits(95, 100), fits(96, 100), fits(95, None)] == [True, False, None]


def test_published_rates_are_not_reached() -> None:
    with gpus._FILE.open(encoding="utf-8", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert {row["measured"] for row in rows.values()} == {"yes", "no"}
    for gpu in known_gpus():
        row, reached = rows[gpu.name], 1.0 if gpu.is_measured else 0.95
        assert gpu.is_measured == (row["measured"] == "yes")
        assert gpu.bytes_per_second == pytest.approx(float(row["bandwidth_gb"]) * 1e9 * reached)
        assert gpu.operations_per_second == pytest.approx(float(row["f32_tflops"]) * 1e12 * reached)
        assert gpu.launch_seconds == pytest.approx(float(row["launch_us"] or 3) * 1e-6)


def test_a_context_has_room_for_the_next_token() -> None:
    (found,) = estimate(MODEL, [H200]).gpus
    context = int(found.calls[-1].what.removeprefix("decode at context ")) + 1
    assert context < 100  # what is decoded at otherwise
    assert estimate(MODEL, [H200], decode=[context - 1]).gpus[0].calls[-1].launches
    with pytest.raises(InputError, match=f"the KV cache holds {context}, one more is needed"):
        estimate(MODEL, [H200], decode=[context])
    with pytest.raises(InputError, match="prefill of 0 tokens"):
        estimate(MODEL, [H200], prefill=[0])


def test_a_longer_context_takes_longer() -> None:
    near, far = estimate(MODEL, [H200], decode=[1, 60]).gpus[0].calls[1:]
    assert near.bytes < far.bytes
    assert near.likely_seconds < far.likely_seconds


def test_other_programs_have_one_call(programs: Path) -> None:
    (found,) = estimate(programs / "vision.pte", [H200]).gpus
    assert [call.what for call in found.calls] == ["forward"]
    assert found.calls[0].tokens_per_second is None
    with pytest.raises(InputError, match="no language model"):
        estimate(programs / "vision.pte", [H200], decode=[3])
    with pytest.raises(InputError, match=r"takes 1 to \d+ in one call"):
        estimate(MODEL, [H200], prefill=[10_000])


def test_the_command_prints_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(MODEL), "--prefill", "31", "--decode", "3"]) == 0
    text = capsys.readouterr().out
    for gpu in known_gpus():
        assert gpu.name in text
    assert main(["estimate", str(MODEL), "--gpu", "4090", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["gpus"]
    assert found["gpu"] == "NVIDIA GeForce RTX 4090"
    for given, name in ((str(MODEL), MODEL.name), ("stories15m", "stories15m")):
        assert main(["estimate", given, "--gpu", "4090"]) == 0
        assert capsys.readouterr().out.startswith(f"{name}, forward: estimated")


def test_a_program_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def local(adapter: str | None = None) -> LocalAdapter:
        return LocalAdapter(H200.target, "NVIDIA H200 (DiscreteGPU, Vulkan)")

    def small(adapter: str) -> Gpu:
        return replace(H200, memory_bytes=100_000)

    monkeypatch.setattr(estimates, "find_adapter", local)
    estimates.check_fits(recognise(MODEL))
    monkeypatch.setattr(estimates, "gpu_of_adapter", small)
    with pytest.raises(
        OutOfMemory, match=r"needs [\d,]+ bytes on a GPU, without KV caches; NVIDIA H200 has 100,000"
    ):
        estimates.check_fits(recognise(MODEL))
    (found,) = estimate(MODEL, [H200]).gpus
    least = found.memory - found.states
    for memory, is_enough in ((least, True), (least - 1, False)):
        monkeypatch.setattr(
            estimates, "gpu_of_adapter", lambda _, memory=memory: replace(H200, memory_bytes=memory)
        )
        if is_enough:
            estimates.check_fits(recognise(MODEL))
        else:
            with pytest.raises(OutOfMemory):
                estimates.check_fits(recognise(MODEL))


def test_serve_refuses_what_cannot_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.setattr(estimates, "gpu_of_adapter", lambda adapter: replace(H200, memory_bytes=1_000_000))
    assert main(["serve", "stories15m", "--port", "0"]) == 1
    assert "without KV caches" in capsys.readouterr().err
