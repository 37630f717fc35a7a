"""Random actions on one model, in any order: every answer is right or a clear error, and no memory leaks."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from faulty import Faults
from random_use import Asked, RandomUse, right_answers

from pteron import Device
from pteron.llm import sequence_pool


@pytest.fixture(scope="module")
def right(device: Device) -> dict[Asked, list[int]]:
    return right_answers(device)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("seed", range(4))
def test_random_use(
    seed: int,
    right: dict[Asked, list[int]],
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if seed % 2:
        monkeypatch.setattr(sequence_pool, "COPIED_MIN", 8)  # so that these short prompts are copied
    gc.collect()
    before = device.buffer_bytes
    use = RandomUse(seed, right, Faults(monkeypatch), device, tmp_path)
    use.run(100)
    del use
    gc.collect()
    kept_max = 1 << 16  # an interrupt inside a finalizer may keep a small buffer
    assert device.buffer_bytes <= before + kept_max
