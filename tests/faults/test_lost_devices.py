"""Drivers that lose their device or run out of memory, truly: a Vulkan library stands before the real one and
lets chosen functions fail (vulkan_faults.c). The process goes on, on a new device, and nothing leaks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from pteron.gpu.encode import NATIVE_VARIABLE

SOURCE = Path(__file__).with_name("vulkan_faults.c")
Run: TypeAlias = Callable[[str], str]
LOST, OUT_OF_MEMORY = -4, -2  # as VkResult
BEGIN = """
import ctypes, gc, os, sys, time
import numpy as np
import pteron
from pteron import Device, DeviceError, DeviceLost, OutOfMemory
from wgpu.backends.wgpu_native._helpers import generate_report

vulkan = ctypes.CDLL("libvulkan.so.1")
PROGRAMS = {programs!r}

def fault(name, result, after=0):
    assert vulkan.fault(name.encode(), result, after)

def kept():  # by wgpu's library: adapters come with every opening
    hub = generate_report()["hub"]
    return {{name: each["kept"] for name, each in hub.items() if each["kept"] and name != "adapters"}}

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

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
def run(vulkan: dict[str, str], library: Path, programs: Path) -> Run:
    """Runs code in a process whose driver can fail, with the C library that survives it."""

    def in_process(code: str) -> str:
        environment = {**os.environ, **vulkan, NATIVE_VARIABLE: str(library)}
        text = BEGIN.format(programs=str(programs)) + textwrap.dedent(code)
        command = [sys.executable, "-c", text]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
        assert ran.returncode == 0, ran.stderr[-3000:]
        return ran.stdout

    return in_process


# Where a driver notices: submitting, waiting, asking whether it is done, ending what pending writes are in.
NOTICED = ["vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue", "vkEndCommandBuffer"]


@pytest.mark.parametrize("function", NOTICED)
@pytest.mark.parametrize("result", [LOST, OUT_OF_MEMORY])
def test_a_device_that_the_driver_loses(run: Run, function: str, result: int) -> None:
    """Out of memory within a submission is no better: what was submitted is unknown."""
    run(f"""
        for loss in range(3):
            device = program.device
            fault({function!r}, {result})
            for _ in range(2):
                try:
                    program["forward"](x)
                    device.poll(wait=True)  # asleep: a GPU is done before a call comes to sleep
                except DeviceLost as error:
                    assert "reload()" in str(error), error
                else:
                    raise AssertionError("not lost")
            fault({function!r}, 0)
            assert device.is_lost and Device.open() is not device
            program.reload()
            assert program.device is Device.open() is not device
            for _ in range(3):
                assert (program["forward"](x)[0] == expected).all()
    """)


def test_nothing_leaks_after_a_loss(run: Run) -> None:
    """Neither the lost device nor, on the thread that met the loss, what calls use after it."""
    run("""
        found = []
        for loss in range(4):
            fault("vkQueueSubmit", -4)
            try:
                program["forward"](x)
            except DeviceLost:
                pass
            fault("vkQueueSubmit", 0)
            program.reload()
            for _ in range(300):
                program["forward"](x)
            gc.collect()
            begun = resident()
            for _ in range(1000):
                program["forward"](x)
            grown = resident() - begun
            time.sleep(0.5)  # what is given up is released by another thread
            found.append(kept())
        assert grown < 1 << 19, grown
        assert found[1] == found[2] == found[3] and found[3]["devices"] == 1, found
    """)


# What a driver may have no room for.
MEMORY = "vkAllocateMemory"
REFUSED = [MEMORY, "vkCreateDescriptorPool", "vkAllocateDescriptorSets", "vkCreateComputePipelines"]


@pytest.mark.parametrize("function", REFUSED)
def test_a_driver_without_memory_at_load(run: Run, function: str) -> None:
    """The load fails with an error, leaves nothing, and succeeds where there is memory again: at once, or on
    a new device where wgpu's library took the old one for lost."""
    printed = run(f"""
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
    if function == MEMORY:
        assert set(printed.split()) == {"OutOfMemory"}


def test_an_opening_that_fails_is_tried_again(run: Run) -> None:
    run("""
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
