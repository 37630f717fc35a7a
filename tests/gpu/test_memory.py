"""Programs that a device is too small for: refused before anything of them is there, with what is missing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import pteron
from pteron import Device, DeviceError, OutOfMemory, system
from pteron.dtypes import DType, Storage
from pteron.gpu import Arena, Buffer, SequenceSlots, States, Weights, memory
from pteron.graph import Constant
from pteron.ops import Weight
from pteron.ops.operand import State, plain_weight
from pteron.passes import StateSpec
from pteron.plan import Executable, Plan
from pteron.tools.inspect.page import program_details


def test_a_machine_without_room_for_a_program(
    models: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()
    before = device.buffer_bytes
    monkeypatch.setattr(device, "target", replace(device.target, is_cpu=True))
    monkeypatch.setattr(memory, "free_memory", lambda: 100_000)
    created = device._buffers.copy()
    with pteron.load(models / "tiny_llama_q4.pte", device=device) as program:
        with pytest.raises(OutOfMemory, match=r"needs [\d,]+ bytes on .*weights [\d,]+.*has 100,000 free"):
            program["forward"]
        assert set(device._buffers) == set(created)
        assert device.buffer_bytes == before
        monkeypatch.setattr(memory, "free_memory", lambda: None)  # unknown
        assert program["forward"]


def test_what_the_machine_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_MEMORY", tmp_path / "meminfo")
    assert (system.free_memory() or 0) > 1 << 20  # macOS: what there is in all
    (tmp_path / "meminfo").write_text("MemTotal:  7 kB\nMemAvailable:    12 kB\n")
    assert system.free_memory() == 12 << 10
    (tmp_path / "meminfo").write_text("MemTotal:  7 kB\n")
    assert system.free_memory() is None


# Buffers and their owners -------------------------------------------------------------------------


@pytest.fixture
def own(device: Device) -> Iterator[Device]:
    """A device with buffers of no other test."""
    opened = Device(device.adapter)
    yield opened
    opened.close()


def floats(device: Device, buffer: Buffer) -> list[float]:
    return list(map(float, np.frombuffer(device.read(buffer, buffer.size), np.float32)))


def test_data_of_any_layout_are_written(own: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once and in chunks; a few bytes at the end do not touch what follows their word."""
    buffer, square = own.create_buffer(64, "floats"), np.arange(16, dtype=np.float32).reshape(4, 4)
    for _ in range(2):
        own.write(buffer, square.T)
        assert floats(own, buffer) == square.T.reshape(-1).tolist()
        own.write(buffer, b"\1\2\3\4\5", 8)
        assert own.read(buffer, 12, 8) == b"\1\2\3\4\5\0\0\0" + np.float32(1).tobytes()
        own.clear(buffer, 4, 8)
        assert own.read(buffer, 20)[:12] == bytes(12)
        monkeypatch.setattr("pteron.gpu.buffers._SMALL", 0)
        monkeypatch.setattr("pteron.gpu.buffers._UPLOAD_CHUNK", 8)
    with pytest.raises(DeviceError, match=r"8 bytes at offset 60 do not fit into the 64 of 'floats'"):
        own.write(buffer, bytes(8), 60)


def test_staging_memory_is_used_again_where_it_is_not_much_too_large(own: Device) -> None:
    first = own.readback(256)
    first.release()
    small = own.readback(32)
    assert small.staging is not first.staging
    again = own.readback(64)
    assert again.staging is first.staging
    assert own.readback(64).staging is not first.staging, "it is in use"
    again.begin()
    with pytest.raises(DeviceError, match="'readback' is being read back already"):
        again.begin()
    assert again.peek(8, 4) == bytes(4)
    for offset, size in ((4, 8), (248, 16), (-8, 8)):
        with pytest.raises(DeviceError, match=f"cannot read bytes {offset} to"):
            again.fill(np.zeros(size, np.uint8), offset)


def test_scratch_memory_grows_and_earlier_plans_keep_theirs(own: Device) -> None:
    arena, slack = Arena(own, cast(Executable, SimpleNamespace(name="graph", slots=(32,)))), own.target.slack

    def reserve(*sizes: int) -> tuple[Buffer, ...]:
        return arena.reserve(cast(Plan, SimpleNamespace(scratch_bytes=sizes)))

    first = reserve(64, 16)
    assert reserve(48) == first[:1]
    larger, same = reserve(80, 16)
    assert larger.size == 80 + slack
    assert same is first[1]
    assert reserve(64)[0] is larger
    own.write(first[0], np.ones(16, np.float32))  # it is not freed
    assert floats(own, first[0])[:16] == [1.0] * 16
    assert arena.bytes_by_kind == {"activations": 32 + slack, "scratch": 64 + 16 + 80 + 3 * slack}
    del first, same  # the earlier plan is forgotten
    gc.collect()
    assert arena.bytes_by_kind["scratch"] == 16 + 80 + 2 * slack
    reserve(96)
    arena.close()
    assert own.buffer_bytes == 0
    with pytest.raises(DeviceError, match="'graph scratch 0' was freed"):
        own.read(larger, 4)


def test_equal_weights_are_one_buffer_until_their_last_user(own: Device) -> None:
    def weight(number: float) -> Weight:
        data = np.full(4, number, np.float32)
        return plain_weight(Constant(f"{number}", DType.F32, (4,), memoryview(data.tobytes())), Storage.F32)

    one, other = Weights(own, "one"), Weights(own, "other")
    one.upload([weight(1), weight(1)])
    assert one[weight(1)] is other[weight(1)]
    assert own.buffer_bytes == one.bytes == other.bytes == 16
    too_long = replace(weight(3), count=2)
    with pytest.raises(ValueError, match="packs"):
        other.upload([weight(1), weight(2), too_long])
    assert set(own.uploads) == {weight(1)}, "what nobody uses is freed"
    buffer = one[weight(1)]
    one.close()
    one.close()
    assert floats(own, buffer) == [1.0] * 4
    other.close()
    assert not own.uploads
    assert own.buffer_bytes == 0


def test_sequences_have_parts_of_shared_memory(own: Device) -> None:
    """A state has its own memory only where the batch has none. A slot is cleared when it is used again."""

    def graph(*states: tuple[int, int]) -> Executable:
        specs = {id: StateSpec(bytes, None) for id, bytes in states}
        return cast(Executable, SimpleNamespace(name="graph", states=specs))

    shared = States(own, graph((1, 512)))
    slots = SequenceSlots(own, graph((1, 256), (2, 32)), shared, 2, [1])
    first, second = slots.take(), slots.take()
    assert first is not None
    assert second is not None
    assert own.buffer_bytes == 512 + 2 * 32
    assert (first.bytes, second.bytes, slots.free) == (288, 288, 0)
    assert slots.take() is None
    whole = np.arange(128, dtype=np.float32)
    own.write(shared[State(1)], whole)
    halves = [list(map(float, np.frombuffer(each.read({1: 256})[0], np.float32))) for each in (first, second)]
    assert [*halves[0], *halves[1]] == whole.tolist()
    second.write({1: np.ones(4, np.uint8)})
    assert first.read({1: 4}) == [bytes(4)]
    second.copy(first, {1: 256})  # within one buffer
    assert second.read({1: 256}) == first.read({1: 256})
    first.reset()
    assert first.read({1: 256}) == [bytes(256)]
    assert any(second.read({1: 256})[0])
    second.close()
    second.close()
    assert (slots.free, own.buffer_bytes) == (1, 512 + 32)
    again = slots.take()
    assert again is not None
    assert again.read({1: 256, 2: 32}) == [bytes(256), bytes(32)]
    shared.close()
    with pytest.raises(DeviceError, match="the batch memory of this sequence is closed"):
        again.check_open()
    again.close()
    assert slots.take() is None


# The memory that the inspect page shows -----------------------------------------------------------


ROUNDING = 16  # bytes, by which each buffer may be larger


@pytest.mark.parametrize("name", ["models/tiny_llama_q4.pte", "programs/mlp.pte"])
def test_bytes_on_the_device(name: str, device: Device) -> None:
    path = Path(__file__).parents[1] / "fixtures" / name
    inside = program_details(path, adapter=device.adapter.name, method="forward")
    (delegate,) = inside.methods[0].delegates
    memory = delegate.plans[0].memory
    assert memory is not None
    with pteron.load(path, device=device) as program:
        held = program["forward"].gpu_bytes
    for kind, bytes, buffers in (
        ("weights", memory.weights, len(delegate.constants)),
        ("states", memory.states, len(delegate.values)),
        ("activations", memory.activations_reserved, len(delegate.values)),
        ("scratch", memory.scratch_reserved, len(delegate.values)),
    ):
        more = ROUNDING + (device.target.slack if kind in ("activations", "scratch") else 0)
        assert bytes <= held[kind] <= bytes + more * buffers, kind


def test_a_program_whose_maximum_exceeds_the_device(
    device: Device, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which dims must be lower, and runs what fits, right; a static one is refused."""
    rows = np.random.default_rng(0).standard_normal((11, 7), np.float32)
    with pteron.load(programs / "mlp_dynamic.pte", device=device) as program:
        expected = [program["forward"](rows[:count])[0] for count in (11, 5)]
    target = device.target
    monkeypatch.setattr(device, "target", replace(target, binding_bytes_max=target.slack + 512))
    with pteron.load(programs / "mlp_dynamic.pte", device=device) as program:
        says = r"runs here with dim 0 of input 0 at most 11\. At its maximum, .* needs a buffer of 748 bytes"
        with pytest.warns(UserWarning, match=says):
            method = program["forward"]
        for whole in expected:
            assert np.allclose(method(rows[: len(whole)])[0], whole, atol=1e-6)
        with pytest.raises(DeviceError, match="needs a buffer of 528 bytes; the adapter allows 512"):
            method(np.zeros((12, 7), np.float32))
    monkeypatch.setattr(device, "target", replace(target, binding_bytes_max=target.slack + 128))
    with (
        pteron.load(programs / "mlp.pte", device=device) as program,
        pytest.raises(DeviceError, match="the adapter allows 128"),
    ):
        program["forward"]
