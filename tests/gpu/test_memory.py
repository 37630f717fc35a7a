"""Programs that a device is too small for: refused before anything of them is there, with what is missing."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sketch import Sketch

import pteron
from pteron import Device, DeviceError, OutOfMemory, system
from pteron.dtypes import DType
from pteron.gpu import memory
from pteron.runtime.delegate import Delegate
from pteron.runtime.session import Session
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


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ({"binding_bytes_max": 32}, "buffers of [0-9,]+ bytes; this one allows 32"),
        ({"buffers_max": 1}, "bind [0-9]+ buffers; this one allows 1"),
        ({"invocations_max": 8}, "workgroups of [0-9]+ invocations; this one allows 8"),
    ],
)
def test_plans_of_a_larger_device(
    programs: Path, tmp_path: Path, device: Device, limit: dict[str, int], says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Which an archive may bring: it is read and then refused, unless the device has what they use."""
    with pteron.load(programs / "mlp.pte", device=device) as program:
        delegate = program["forward"].sole_delegate
        assert delegate is not None
        delegate.save(tmp_path / "plans.ptex")
    larger = replace(device.target, binding_bytes_max=1 << 40, buffers_max=99, invocations_max=4096)
    monkeypatch.setattr(device, "target", larger)
    Delegate.open(tmp_path / "plans.ptex", device).close()  # unused limits are not required
    smaller = replace(device.target, **limit)  # type: ignore[arg-type]
    monkeypatch.setattr(device, "target", smaller)
    with pytest.raises(DeviceError, match=f"planned for a larger device, with .*{says}"):
        Delegate.open(tmp_path / "plans.ptex", device)


def test_scratch_memory_of_a_larger_device(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sort's order takes more than its input and its outputs, which have no power of two of elements."""
    sketch = Sketch()
    x, values, places = sketch.tensor(1025), sketch.tensor(1025), sketch.tensor(1025, dtype=DType.I64)
    sketch.node("aten.sort.default", x, 0, False, sketch.list(values, places))
    graph = sketch.graph([x], [values, places])
    delegate = Delegate(Session.of(graph, device))
    delegate.recorded((np.zeros(1025, np.float32),))
    delegate.save(tmp_path / "plans.ptex")
    monkeypatch.setattr(device, "target", replace(device.target, binding_bytes_max=5000))
    with pytest.raises(DeviceError, match="planned for a larger device, with buffers of 8,192 bytes"):
        Delegate.open(tmp_path / "plans.ptex", device)


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
        assert bytes <= held[kind] <= bytes + ROUNDING * buffers, kind
