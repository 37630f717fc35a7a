"""Fixtures that many tests share: where programs lie, and the machine's device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from compile_fixtures import compiled_folder, lowerings  # noqa: F401  # fixtures of tests that compile
from encoder_fixtures import encoding, library  # noqa: F401  # fixtures of tests that submit
from kernel_fixtures import _in_browsers, _measured, measuring  # noqa: F401  # fixtures of tests/gpu
from subgroup_fixtures import few, own_subgroups, subgroups, width  # noqa: F401  # fixtures of tests/gpu

from pteron import Device
from pteron.ops import Target

FIXTURES = Path(__file__).parent / "fixtures"
STORAGE_BUFFERS = Target().storage_buffers_max  # those of every device, whatever this one has


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of small exported programs with their goldens."""
    return FIXTURES / "programs"


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of tiny language models with their goldens."""
    return FIXTURES / "models"


@pytest.fixture(scope="session")
def device() -> Device:
    """The shared device, on which programs are loaded by default."""
    return Device.open()


@pytest.fixture(params=["software", "hardware"])
def target(request: pytest.FixtureRequest, device: Device) -> Target:
    """The device as if it were a CPU, and as if it were not: kernels of both kinds run on any adapter."""
    return replace(device.target, is_cpu=request.param == "software", storage_buffers_max=STORAGE_BUFFERS)
