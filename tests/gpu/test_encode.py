"""Encoding by the C library and by Python: the same results, passes and errors."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_fixtures import encode_by
from golden import read_cases

import pteron
from pteron import Device
from pteron.cli import main
from pteron.dtypes import DType, Storage
from pteron.gpu import Command, Commands, Copy, PassTimer, Replay, record, submit
from pteron.gpu import encode as encode_module
from pteron.gpu.encode import encoder
from pteron.gpu.wgpu_native import LIBRARY
from pteron.host.tensors import as_declared, to_storage

ADD_ONE = """
@group(0) @binding(0) var<storage, read_write> sum: array<f32>;
@compute @workgroup_size(1) fn main() { sum[0] = sum[0] + 1.0; }
"""
COPY = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@compute @workgroup_size(1) fn main() { b[0] = a[0]; }
"""


class Bench:
    """A kernel that adds one to `sum`, one that copies, and what they need."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.sum = device.create_buffer(64, "sum")
        self.other = device.create_buffer(64, "other")
        self._add, self._copy = (self._pipeline(code) for code in (ADD_ONE, COPY))
        self._sum = self._group(self._add, self.sum)
        self._pair = self._group(self._copy, self.sum, self.other)
        self._twice = self._group(self._copy, self.sum, self.sum)
        self._kept = [self._add, self._copy, self._sum, self._pair, self._twice]

    def add(self, times: int = 1, groups: int = 1) -> Replay:
        return self._replay([(self._add, self._sum)] * times, groups)

    def mismatched(self) -> Replay:
        return self._replay([(self._add, self._pair)])

    def read_and_written(self) -> Replay:
        return self._replay([(self._copy, self._twice)])

    def value(self) -> float:
        return float(np.frombuffer(self.device.read(self.sum, 4), np.float32)[0])

    def _replay(self, pairs: list[tuple[Any, Any]], groups: int = 1) -> Replay:
        steps = [(pipeline._internal, group._internal, groups, 1, 1) for pipeline, group in pairs]
        return Replay(steps, self._kept)

    def _pipeline(self, code: str) -> Any:
        module = self.device.handle.create_shader_module(code=code)
        compute = {"module": module, "entry_point": "main"}
        return self.device.handle.create_compute_pipeline(layout="auto", compute=compute)

    def _group(self, pipeline: Any, *buffers: Any) -> Any:
        entries = [{"binding": index, "resource": {"buffer": each}} for index, each in enumerate(buffers)]
        layout = pipeline.get_bind_group_layout(0)
        return self.device.handle.create_bind_group(layout=layout, entries=entries)


@pytest.fixture
def bench(device: Device, encoding: str) -> Iterator[Bench]:
    bench = Bench(device)
    yield bench
    device.free(bench.sum)
    device.free(bench.other)


@pytest.mark.parametrize("name", ["mlp_dynamic", "two_delegates", "attention_cache", "symint_output"])
def test_same_results(programs: Path, name: str, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, over calls that repeat each other and calls that do not."""
    cases = read_cases(programs / f"{name}.npz")
    results = []
    for value in (str(library), "0"):
        encode_by(monkeypatch, value)
        with pteron.load(programs / f"{name}.pte") as program:
            found = [program[case.method](*case.inputs) for case in cases for _ in range(3)]
        results.append([np.asarray(output) for outputs in found for output in outputs])
    encoder.cache_clear()
    for native, python in zip(*results, strict=True):
        np.testing.assert_array_equal(native, python)


def test_commands_run_in_order(bench: Bench) -> None:
    device, staging = bench.device, bench.device.create_buffer(64, "seen")
    seen = [Copy(bench.sum, staging, 4, target_offset=4 * index) for index in range(3)]
    nothing: list[Command] = [Replay([], []), Copy(bench.sum, staging, 0)]
    submit(device, [bench.add(), seen[0], bench.add(2), bench.add(3), *nothing, seen[1], seen[2]])
    assert np.frombuffer(device.read(staging, 12), np.float32).tolist() == [1, 6, 6]
    device.free(staging)
    submit(device, [])


@pytest.mark.parametrize("times", [0, 1, 16, 17, 195, 1000])
def test_the_gpu_begins_before_all_is_recorded(bench: Bench, times: int) -> None:
    """Parts of a replay are its steps in their order, each submitted once; copies stay where they were."""
    replay, staging = bench.add(times), bench.device.create_buffer(64, "seen")
    assert [step for part in replay.parts for step in part.launches] == replay.launches
    assert (len(replay.parts) > 1) == (times > 16)
    seen = [Copy(bench.sum, staging, 4, target_offset=4 * index) for index in range(2)]
    commands = Commands(bench.device, [seen[0], replay, bench.add(), replay, seen[1]], in_parts=True)
    for turn, is_recorded in enumerate((False, True, False)):
        if is_recorded:
            commands.record()
        assert commands.is_recorded == is_recorded
        commands.submit()
        sums = np.frombuffer(bench.device.read(staging, 8), np.float32)
        assert sums.tolist() == [turn * (2 * times + 1), (turn + 1) * (2 * times + 1)]
    bench.device.free(staging)
    submit(bench.device, [], in_parts=True)


def test_a_recording_waits_for_its_turn(bench: Bench) -> None:
    late = record(bench.device, [bench.add()])
    assert bench.value() == 0
    submit(bench.device, [bench.add(10)])
    late.submit()
    assert bench.value() == 11
    late.submit()
    assert bench.value() == 12


def test_passes_are_timed(bench: Bench) -> None:
    """Replays that follow one another share a pass; those beyond the timer's size go untimed."""
    copy = Copy(bench.sum, bench.other, 4)
    timer = PassTimer(bench.device, 3)
    submit(bench.device, [bench.add(3), bench.add(), copy, copy, bench.add()], timer)
    seconds = timer.seconds()
    assert len(seconds) == 2
    assert all(each > 0 for each in seconds)
    submit(bench.device, [bench.add(), copy] * 5, timer)
    assert len(timer.seconds()) == 3
    assert timer.seconds() == []
    submit(bench.device, [bench.add()], timer)
    assert len(timer.seconds()) == 1
    assert bench.value() == 11


def test_errors_are_raised_and_harm_nothing(bench: Bench) -> None:
    """An invalid command buffer would end the process."""
    beyond = Copy(bench.sum, bench.other, 128)
    wrong: dict[str, list[Command]] = {
        "not compatible": [bench.add(), bench.mismatched(), bench.add()],
        "must be less or equal": [bench.add(groups=65536)],
        "conflicting usages": [bench.read_and_written(), Copy(bench.sum, bench.other, 4)],
        "overrunning the bounds": [beyond, bench.add(), beyond, bench.add()],
        "not aligned": [bench.add(), Copy(bench.sum, bench.other, 4, target_offset=2)],
        "cannot be the same buffer": [Copy(bench.sum, bench.sum, 4, target_offset=8), bench.add()],
    }
    for message, commands in wrong.items():
        if bench.device.library.name == "Dawn":  # tells at submission, without the reason
            message = "is invalid due to a previous error"
        with pytest.raises(pteron.DeviceError, match=message) as raised:
            submit(bench.device, commands)
        assert str(raised.value).startswith("recording commands: ")
        submit(bench.device, [bench.add()])
    assert bench.value() == len(wrong)


def test_a_buffer_that_is_freed_between_two_submissions(bench: Bench) -> None:
    """The commands were right the first time; with a freed buffer they would end the process."""
    commands = [Copy(bench.sum, bench.other, 4)]
    submit(bench.device, commands)
    bench.device.free(bench.other)
    with pytest.raises(pteron.DeviceError, match="'other' was freed before commands that use it"):
        submit(bench.device, commands)


@pytest.mark.usefixtures("encoding")
def test_floats_and_halves() -> None:
    """Every half, and floats of all sizes: those between two halves, beyond the largest, not numbers."""
    random, every = np.random.default_rng(0), np.arange(1 << 16, dtype=np.uint16)
    halves = every.view(np.float16)
    with np.errstate(all="ignore"):
        floats = halves.astype(np.float32)
        near = [np.nextafter(floats, np.float32(way)) for way in (-np.inf, np.inf)]
        between = (floats[:-1] + floats[1:]) / 2
        any_bits = random.integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
        given = np.concatenate([floats, *near, between, any_bits])
        expected, found = given.astype(np.float16), to_storage(given, DType.F32, Storage.F16)
    np.testing.assert_array_equal(as_declared(halves, DType.F32), floats)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(found[numbers].view(np.uint16), expected[numbers].view(np.uint16))
    assert np.isnan(found[~numbers]).all()
    turned = floats.reshape(256, 256).T
    np.testing.assert_array_equal(to_storage(turned, DType.F32, Storage.F16), halves.reshape(256, 256).T)


# Which way is taken --------------------------------------------------------------------------------------


@pytest.fixture
def _chosen_anew() -> Iterator[None]:
    yield
    encoder.cache_clear()


@pytest.mark.usefixtures("_chosen_anew")
def test_python_where_the_package_has_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encode_by(monkeypatch, "")
    missing, damaged = tmp_path / "missing.so", tmp_path / "damaged.so"
    damaged.write_bytes(b"no library")
    for path, reason in ((missing, "the package has no C library"), (damaged, "damaged.so cannot be loaded")):
        monkeypatch.setattr(encode_module, "PACKAGED", path)
        encoder.cache_clear()
        assert encoder(LIBRARY).description == f"Python ({reason})"


@pytest.mark.usefixtures("_chosen_anew")
def test_the_packaged_library_is_used(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    monkeypatch.setattr(encode_module, "PACKAGED", library)
    for value in ("", "1"):
        encode_by(monkeypatch, value)
        assert encoder(LIBRARY).description == f"native ({library.name})"


@pytest.mark.usefixtures("_chosen_anew")
def test_a_requested_library_that_cannot_be_used_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: Path
) -> None:
    encode_by(monkeypatch, str(tmp_path / "missing.so"))
    with pytest.raises(pteron.DeviceError, match="PTERON_NATIVE="):
        encoder(LIBRARY)
    source, other = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text("unsigned pteron_encode_version(void) { return 99; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(other), str(source)], check=True)
    encode_by(monkeypatch, str(other))
    with pytest.raises(pteron.DeviceError, match="has version 99, expected"):
        encoder(LIBRARY)


def test_info_says_which(encoding: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert re.search(rf"commands +encoded by {encoding} \(", capsys.readouterr().out)
