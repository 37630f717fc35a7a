"""Loading in threads: kernels compile while weights are uploaded, and what fails leaves nothing behind."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import Device, DeviceError
from pteron.gpu import memory
from pteron.gpu.recording import Recording
from pteron.ops.operand import Weight
from pteron.wgsl import Kernels, compose

kernel = Kernels("pteron.families.layout.copy")


def test_a_kernel_that_does_not_compile_is_named(device: Device) -> None:
    """The error names the broken kernel; the other kernels are compiled and usable afterwards."""
    good = compose(kernel("copy", convert="R(value)"))
    broken = replace(good, source="fn main( {", bounds_checks=True)
    with device.lock:
        with pytest.raises(DeviceError, match="compiling kernel copy"):
            device.pipelines([broken, good])
        uploaded = list[str]()
        device.pipelines([good], lambda: uploaded.append("a weight"))
    assert uploaded
    assert device.pipeline(good)


@pytest.mark.parametrize("failing", [1, 4])
def test_an_upload_that_fails_leaves_nothing(
    models: Path, device: Device, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()
    before = device.buffer_bytes, len(device.uploads)
    pack, packed = Weight.pack_in_pieces, list[Weight]()

    def fail_once(weight: Weight, staging: memoryview) -> object:
        packed.append(weight)
        if len(packed) == failing:
            raise MemoryError("no room")
        return pack(weight, staging)

    monkeypatch.setattr(Weight, "pack_in_pieces", fail_once)
    with pytest.raises(MemoryError, match="no room"):
        pteron.load(models / "tiny_llama_q4.pte", device=device)["forward"]
    gc.collect()
    assert (device.buffer_bytes, len(device.uploads)) == before
    monkeypatch.setattr(Weight, "pack_in_pieces", pack)
    assert pteron.load(models / "tiny_llama_q4.pte", device=device)["forward"]


def test_bind_groups_are_made_at_the_first_call(
    programs: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, bind = list[object](), Recording._bind

    def count(recording: Recording, launch: Any, *others: Any) -> list[Any]:
        bound.append(launch)
        return bind(recording, launch, *others)

    monkeypatch.setattr(Recording, "_bind", count)
    method = pteron.load(programs / "mlp.pte", device=device)["forward"]
    assert not bound
    for _ in range(2):
        method(np.ones((3, 7), np.float32))
        assert len(bound) == method.counters.dispatches // method.counters.calls


def test_large_writes_do_not_wait_for_each_other(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written reaches its buffer whether or not it was sent on the way."""
    monkeypatch.setattr("pteron.gpu.buffers._WRITTEN_MAX", 1 << 17)
    data = bytes(range(256)) * 1024
    buffers = [device.create_buffer(len(data), "written") for _ in range(3)]
    for buffer in buffers:
        device.write(buffer, data)
    assert all(device.read(buffer, len(data)) == data for buffer in buffers)
    for buffer in buffers:
        device.free(buffer)


def test_weights_are_uploaded_once(models: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pteron.load(models / "tiny_llama_q4.pte", device=device)["forward"]
    sent = list[Weight]()
    monkeypatch.setattr(memory.Weights, "_upload", lambda self, weight, spare: sent.append(weight))
    second = pteron.load(models / "tiny_llama_q4.pte", device=device)["forward"]
    assert first.gpu_bytes["weights"] == second.gpu_bytes["weights"]
    assert not sent
