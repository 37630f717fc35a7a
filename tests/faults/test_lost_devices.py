"""Drivers that lose their device or run out of memory: a Vulkan library in front of the real one makes chosen
functions fail (vulkan_faults.c). wgpu reports some failures as errors; in others it ends the process with a
message."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

SOURCE = Path(__file__).with_name("vulkan_faults.c")
Run: TypeAlias = Callable[[str], "subprocess.CompletedProcess[str]"]
LOST = -4  # as VkResult
BEGIN = """
import ctypes, gc
import numpy as np
import pteron
from pteron import Device, DeviceError, DeviceLost, OutOfMemory

vulkan = ctypes.CDLL("libvulkan.so.1")
PROGRAMS = {programs!r}

def fault(name, result, after=0):
    assert vulkan.fault(name.encode(), result, after)

def served(program):  # as a service does
    try:
        program.device.wait()
        return program["forward"]
    except DeviceLost:
        program.reload()
        return program["forward"]

program = pteron.load(PROGRAMS + "/mlp.pte")
x = np.ones((3, 7), np.float32)
for _ in range(3):
    (expected,) = program["forward"](x)
"""


@pytest.fixture(scope="module")
def vulkan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the library stands before the real one."""
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        pytest.skip("the library is built with `cc`, for Linux")
    look = "import ctypes; ctypes.CDLL('libvulkan.so.1'); print(open('/proc/self/maps').read())"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    real = {line.split()[-1] for line in found.stdout.splitlines() if "libvulkan.so" in line}
    if not real:
        pytest.skip("there is no Vulkan loader")
    folder = tmp_path_factory.mktemp("vulkan")
    library = folder / "libvulkan.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    subprocess.run(["cc", *flags, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    return {"LD_LIBRARY_PATH": path, "PTERON_REAL_VULKAN": real.pop()}


@pytest.fixture
def run(vulkan: dict[str, str], programs: Path) -> Run:
    """Runs code in a process whose driver can fail."""

    def in_process(code: str) -> subprocess.CompletedProcess[str]:
        text = BEGIN.format(programs=str(programs)) + textwrap.dedent(code)
        return subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, **vulkan},
            capture_output=True,
            text=True,
            timeout=200,
        )

    return in_process


def printed(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.parametrize("function", ["vkQueueSubmit", "vkWaitSemaphores"])
def test_a_device_that_is_lost_inside_a_submission(run: Run, function: str) -> None:
    """wgpu aborts the process there, with a message; a supervisor restarts it."""
    ran = run(f"""
        fault({function!r}, {LOST})
        program["forward"](x)
        program.device.poll(wait=True)
    """)
    assert ran.returncode == -signal.SIGABRT
    assert "Parent device is lost" in ran.stderr


def test_a_device_that_is_reported_lost(run: Run) -> None:
    """DeviceLost, and a new device after `reload`."""
    printed(
        run("""
        for _ in range(3):
            device = program.device
            device.handle.destroy()
            for _ in range(2):
                try:
                    program["forward"](x)
                except DeviceLost as error:
                    assert "reload()" in str(error), error
                else:
                    raise AssertionError("not lost")
            assert device.is_lost and Device.open() is not device
            program.reload()
            assert program.device is Device.open() is not device
            for _ in range(3):
                assert (program["forward"](x)[0] == expected).all()
        """)
    )


# Functions that need memory.
MEMORY = "vkAllocateMemory"
REFUSED = [MEMORY, "vkCreateDescriptorPool", "vkAllocateDescriptorSets", "vkCreateComputePipelines"]


@pytest.mark.parametrize("function", REFUSED)
def test_a_driver_without_memory_at_load(run: Run, function: str) -> None:
    """The load fails with an error, leaves nothing, and succeeds where there is memory again: at once, or on
    a new device where wgpu's library took the old one for lost."""
    told = run(f"""
        before = program.device.buffer_bytes
        other = pteron.load(PROGRAMS + "/norms.pte")
        fault({function!r}, -2)
        for _ in range(2):
            try:
                method = other["forward"]
                large = [program.device.create_buffer(1 << 26, "large") for _ in range(8)]
                print("nothing was asked of the driver")
            except DeviceError as error:
                print(type(error).__name__)
            method = large = None
        fault({function!r}, 0)
        gc.collect()
        assert served(other)
        assert (served(program)(x)[0] == expected).all()
        other.close()
        gc.collect()
        assert program.device.buffer_bytes == before, (before, program.device.buffer_bytes)
    """)
    errors = set(printed(told).split())
    if function == MEMORY:
        assert errors == {"OutOfMemory"}


def test_an_opening_that_fails_is_tried_again(run: Run) -> None:
    told = run("""
        fault("vkCreateCommandPool", -2)
        for _ in range(2):
            try:
                Device(program.device.adapter).check_open()
            except OutOfMemory:
                pass
            else:
                raise AssertionError("opened")
        fault("vkCreateCommandPool", 0)
        Device(program.device.adapter).check_open()
    """)
    printed(told)
