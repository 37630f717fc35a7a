"""The memory that the page shows is what a device then holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import pteron
from pteron.gpu import Device
from pteron.tools.inspect.page import program_details

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
