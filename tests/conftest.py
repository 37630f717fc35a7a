"""Fixtures that many tests share: where programs lie, and the machine's device."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from browser_fixtures import browser, open_page  # noqa: F401  # fixtures of tests/browser
from chat_fixtures import canned_address, chat, phone, tab  # noqa: F401  # fixtures of tests/browser
from compile_fixtures import compiled_folder, lowerings  # noqa: F401  # fixtures of tests that compile
from encoder_fixtures import encoding, library  # noqa: F401  # fixtures of tests that submit
from engine_fixtures import engine, tiny_llm, watched  # noqa: F401  # fixtures of tests/serving
from kernel_fixtures import _in_browsers, _measured, launches, measuring  # noqa: F401  # fixtures of tests/gpu
from serving_fixtures import server, stories, stories_engine  # noqa: F401  # fixtures of tests/serving
from subgroup_fixtures import few, own_subgroups, subgroups, width  # noqa: F401  # fixtures of tests/gpu

from pteron import Device
from pteron.ops import Target
from pteron.ops.join import JOINS
from pteron.ops.rewrite import REWRITES
from pteron.passes.rewrite import REWRITES_VARIABLE, switched_on

FIXTURES = Path(__file__).parent / "fixtures"
STORAGE_BUFFERS = Target().buffers_max  # those of every device, whatever this one has


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that look at what rewrites make need all of them; all others run with whichever are on."""
    if item.get_closest_marker("rewrites") and len(switched_on()) < len(REWRITES) + len(JOINS):
        value = os.environ[REWRITES_VARIABLE]
        pytest.skip(f"looks at what rewrites make, and {REWRITES_VARIABLE}={value} switches some off")


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
    return replace(device.target, is_cpu=request.param == "software", buffers_max=STORAGE_BUFFERS)
