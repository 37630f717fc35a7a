"""What an adapter reaches at best: numbers that make sense, measured once."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from pteron import Device
from pteron.tools.profile import ceilings
from pteron.tools.profile.ceilings import ceilings_of, measure_ceilings


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_SECONDS", 0.02)


def test_ceilings_are_kept(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    measured = ceilings_of(device)
    assert ceilings_of(device) == measured
    (path,) = (tmp_path / "ceilings").iterdir()
    path.write_text("[1e9, 2e9]")
    assert ceilings_of(device).bytes_per_second == 1e9
    path.write_text("[1e9")
    assert ceilings_of(device).bytes_per_second > 1e6
    assert ceilings_of(device, remeasure=True).operations_per_second > 1e6


def test_ceilings_make_sense(device: Device) -> None:
    """However short they are measured: less than any machine has, more than none."""
    for found in (measure_ceilings(device), measure_ceilings(device)):
        assert 1e7 < found.bytes_per_second < 2e13
        assert 1e7 < found.operations_per_second < 1e15


def test_ceilings_leave_nothing_behind(device: Device) -> None:
    gc.collect()  # programs that earlier tests left open
    before = device.buffer_bytes
    measure_ceilings(device)
    assert device.buffer_bytes == before
