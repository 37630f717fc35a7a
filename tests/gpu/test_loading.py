"""Loading in threads: kernels compile while weights are uploaded, and what fails leaves nothing behind."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

import pteron
from pteron import Device, DeviceError
from pteron.gpu import memory
from pteron.ops.operand import Weight
from pteron.wgsl import Kernels, compose

kernel = Kernels("pteron.families.layout.copy")


def test_a_kernel_that_does_not_compile_is_named(device: Device) -> None:
    """The error names the broken kernel; the other kernels are compiled and usable afterwards."""
    good = compose(kernel("copy"))
    broken = replace(good, source="fn main( {", bounds_checks=True)
    with device.lock:
        with pytest.raises(DeviceError, match="compiling kernel copy"):
            device.compile([broken, good])
        uploaded = list[str]()
        device.compile([good], lambda: uploaded.append("a weight"))
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


def test_threads_send_what_they_wrote(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker thread's write completes although the thread that joins it holds the device lock."""
    monkeypatch.setattr("pteron.gpu.buffers._WRITTEN_MAX", 1 << 17)
    data = bytes(range(256)) * 1024
    buffer = device.create_buffer(len(data), "written")
    thread = threading.Thread(target=device.write, args=(buffer, data), daemon=True)
    with device.lock:
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    assert device.read(buffer, len(data)) == data
    device.free(buffer)


def test_weights_are_uploaded_once(models: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pteron.load(models / "tiny_llama_q4.pte", device=device)["forward"]
    sent = list[Weight]()
    monkeypatch.setattr(memory.Weights, "_upload", lambda self, weight, spare: sent.append(weight))
    second = pteron.load(models / "tiny_llama_q4.pte", device=device)["forward"]
    assert first.gpu_bytes["weights"] == second.gpu_bytes["weights"]
    assert not sent


class Ending:
    """Needs the device's lock to end, and can only be collected: it holds itself."""

    def __init__(self, device: Device) -> None:
        self.itself = self
        weakref.finalize(self, _lock_once, device)


def _lock_once(device: Device) -> None:
    with device.lock:
        pass


def test_garbage_is_not_collected_where_the_lock_is_waited_for(
    models: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is collected on a thread that uploads would wait for the lock that its caller holds."""
    gc.collect()  # programs that hold the same weights
    pack, packed = Weight.pack_in_pieces, list[Weight]()

    def pack_among_garbage(weight: Weight, staging: memoryview) -> object:
        packed.append(weight)
        Ending(device)
        assert [[] for _ in range(20_000)]  # enough for the collector to run
        return pack(weight, staging)

    monkeypatch.setattr(Weight, "pack_in_pieces", pack_among_garbage)
    loading = threading.Thread(
        target=lambda: pteron.load(models / "tiny_llama_q4.pte", device=device)["forward"], daemon=True
    )
    loading.start()
    loading.join(60)
    assert not loading.is_alive()
    assert packed
    assert gc.isenabled()
