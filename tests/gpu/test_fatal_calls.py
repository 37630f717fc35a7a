"""What ends the process inside wgpu's library: every way to it, tried in another process, is an error."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pteron import Device

OPEN = """
device = Device.open()
def another():
    return Device(device.adapter)
"""
BEGIN = f"""
import numpy as np
import pteron
from pteron import Device, DeviceError, DeviceLost, OutOfMemory
from pteron.gpu import Copy, PassTimer, record, submit
from pteron.gpu.readback import wait_for_all
{OPEN}
a, b = device.create_buffer(64, "first"), device.create_buffer(64, "second")
def lose():  # as a driver would, without a callback
    device.handle.destroy()
"""

# What is wrong, the code, and what the error says.
WRONG = [
    ("a freed one is submitted", "made = record(device, copy); device.free(a); made.submit()", "was freed"),
    ("a freed buffer is read", "device.free(a); device.read(a, 4)", "freed|destroyed"),
    ("a freed buffer is cleared", "device.free(a); device.clear(a)", "freed|destroyed"),
    ("a freed buffer is written", "device.free(a); device.write(a, b'1234')", "destroyed"),
    ("a buffer that is being mapped is submitted", "staging.begin(); submit(device, home)", "is mapped"),
    ("a mapped buffer is submitted", "staging.peek(0, 4); submit(device, home)", "is mapped"),
    ("a map is asked for twice", "staging.begin(); staging.begin(); staging.peek(0, 4)", "read back"),
    ("more is read than there is", "staging.fill(np.zeros(1024, np.uint8), 0)", "cannot read"),
    ("bytes at an odd place are read", "staging.fill(np.zeros(4, np.uint8), 4)", "cannot read"),
    ("more is written than there is", "device.write(a, bytes(128))", "do not fit"),
    ("bytes are written at an odd place", "device.write(a, b'1234', 2)", "writing"),
    ("another device's buffer is submitted", "submit(device, [Copy(a, foreign, 64)])", "recording"),
    ("another device's buffer is written", "device.write(foreign, b'1234')", "writing"),
    ("a closed device", "made = record(device, copy); device.close(); made.submit()", "closed"),
    ("closed while results are awaited", "staging.begin(); device.close(); staging.peek(0, 4)", "closed"),
    ("closed once they are there", "staging.peek(0, 4); device.close(); staging.peek(0, 4)", "closed"),
    ("a buffer above the limits", "device.create_buffer(1 << 40, 'huge')", r"huge needs .* allows .* \(max-"),
    ("a broken kernel", "device.pipeline(replace(kernel, source='fn {'))", "compiling kernel copy"),
]  # fmt: skip

LOST = {
    "commands are recorded": "submit(device, [Copy(a, b, 64)])",
    "few bytes are written": "device.write(a, b'1234')",
    "many bytes are written": "device.write(device_large, bytes(1 << 20))",
    "a buffer is created": "device.create_buffer(64, 'third')",
    "a buffer is cleared": "device.clear(a)",
    "a buffer is read": "device.read(a, 4)",
    "a timer is created": "PassTimer(device, 4)",
}


# The same on Dawn, without a GPU.
NULL = f"""
import sys
sys.path.append({str(Path(__file__).parent.parent)!r})
from dawn_compiler import null_adapter
device = Device(null_adapter())
def another():
    return Device(null_adapter())
"""


@pytest.fixture(params=["default", "Dawn"])
def begin(request: pytest.FixtureRequest) -> str:
    if request.param == "default":
        return BEGIN
    pytest.importorskip("wgpudawn")
    return BEGIN.replace(OPEN, NULL)


def run(code: str, begin: str = BEGIN) -> str:
    """What a process prints that ends of its own accord."""
    ran = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(code)], capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.long
def test_nothing_that_is_wrong_ends_the_process(begin: str) -> None:
    """Each on a device of its own, which is as good as before unless it was closed."""
    run(
        f"""
        import re
        from dataclasses import replace
        from pteron.wgsl import Kernels, compose
        kernel = compose(Kernels("pteron.families.layout.copy")("copy", convert="R(value)"))
        foreign = a
        for name, code, says in {WRONG!r}:
            device = another()
            a, b = device.create_buffer(64, "first"), device.create_buffer(64, "second")
            staging = device.readback(64)
            copy, home = [Copy(a, b, 64)], [Copy(a, staging.staging, 64)]
            try:
                exec(code)
            except DeviceError as error:
                assert re.search(says, str(error)), (name, str(error))
            else:
                raise AssertionError(name)
            if not device.is_closed:
                again = device.create_buffer(64, "again")
                device.write(again, b"good")
                assert device.read(again, 4) == b"good" or "Null" in device.name, name
    """,
        begin,
    )


@pytest.mark.long
def test_every_use_of_a_lost_device_is_an_error(begin: str) -> None:
    run(
        f"""
        device.close()
        shared = Device.open()
        assert shared is not device and not shared.is_closed, "the shared device is opened again"
        for name, code in {list(LOST.items())!r}:
            device = another()
            a, b = device.create_buffer(64, "first"), device.create_buffer(64, "second")
            device_large = device.create_buffer(1 << 20, "large")
            lose()
            for _ in range(2):
                try:
                    exec(code)
                except DeviceLost as error:
                    assert "reload" in str(error), (name, str(error))
                else:
                    raise AssertionError(name)
            assert device.is_lost and not device.is_usable, name
            device.free(a)
            device.close()
    """,
        begin,
    )


@pytest.mark.long
def test_a_program_is_reloaded_on_a_new_device(programs: Path) -> None:
    run(f"""
        program = pteron.load({str(programs / "mlp.pte")!r})
        x = np.ones((3, 7), np.float32)
        (expected,) = program["forward"](x)
        for _ in range(2):
            device = program.device
            lose()
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


@pytest.mark.long
def test_memory_that_the_adapter_does_not_give(device: Device) -> None:
    """A limit on the process makes it real: the device is as good as before once something was freed."""
    if not device.adapter.is_cpu:
        pytest.skip("the memory of a GPU is not the process's, and is not ours alone to use up")
    printed = run("""
        import gc, resource
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        before = device.buffer_bytes
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, hard))
        taken = []
        try:
            while True:
                taken.append(device.create_buffer(device.target.binding_bytes_max, "a large one"))
        except OutOfMemory as error:
            assert isinstance(error, MemoryError)
            print(len(taken), error)
        assert device.buffer_bytes == before + sum(buffer.size for buffer in taken)
        for buffer in taken:
            device.free(buffer)
        taken.clear()
        assert device.buffer_bytes == before
        taken = [device.create_buffer(device.target.binding_bytes_max, "a large one") for _ in range(4)]
        device.write(taken[3], b"good")
        assert device.read(taken[3], 4) == b"good"
    """)
    assert "for a large one on" in printed


@pytest.mark.long(every=2)
@pytest.mark.parametrize("way", ["os.fork", "multiprocessing"])
def test_a_forked_child_gets_errors(way: str, programs: Path) -> None:
    """Whatever it tries, and while another thread of the parent is in a call; then it ends as any process."""
    printed = run(f"""
        import ctypes, gc, multiprocessing, os, sys, threading
        program = pteron.load({str(programs / "mlp.pte")!r})
        method, x = program["forward"], np.ones((3, 7), np.float32)
        for _ in range(3):
            (expected,) = method(x)
        (kept,) = method(x, on_gpu=True)

        def tries():
            attempts = [
                lambda: method(x), method.reset, kept.numpy, Device.open, pteron.adapters, program.reload,
                lambda: program["forward"](x), lambda: device.create_buffer(64, "x"), device.wait,
                lambda: pteron.load({str(programs / "mlp.pte")!r})["forward"],
            ]
            for attempt in attempts:
                try:
                    attempt()
                except DeviceError as error:
                    assert "spawn" in str(error), error
                else:
                    raise AssertionError(attempt)
            program.close()

        def child():
            global method, program, kept, device, a, b
            tries()
            del method, program, kept, device, a, b
            gc.collect()

        calling = True
        def call():
            while calling:
                method(x)
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        for _ in range(5):
            if {way!r} == "os.fork":
                process = os.fork()
                if process == 0:
                    calling = False
                    child()
                    # The interpreter ends all that is left, where drivers do nothing at exit().
                    (sys.exit if hasattr(ctypes.CDLL(None), "on_exit") else os._exit)(0)
                assert os.waitpid(process, 0)[1] == 0
            else:
                process = multiprocessing.get_context("fork").Process(target=child)
                process.start()
                process.join(60)
                assert process.exitcode == 0, process.exitcode
        calling = False
        thread.join()
        assert (method(x)[0] == expected).all()
        print("the parent goes on")
    """)
    assert "the parent goes on" in printed


@pytest.mark.long
def test_a_forked_child_of_both_libraries_gets_errors() -> None:
    pytest.importorskip("wgpudawn")
    printed = run(f"""
        import gc, os, sys
        others = [device, Device.open(webgpu="wgpu")]
        {textwrap.indent(NULL, "        ").strip()}
        devices = [*others, device]
        process = os.fork()
        if process == 0:
            for each in devices:
                try:
                    each.create_buffer(64, "a buffer of the child")
                except DeviceError as error:
                    assert "spawn" in str(error), error
                else:
                    os._exit(1)
            del device, a, b, others, devices, each
            gc.collect()
            sys.exit(0)
        assert os.waitpid(process, 0)[1] == 0
        for each in devices:
            each.write(each.create_buffer(64, "a buffer of the parent"), b"good")
            each.wait()
        print("the parent goes on")
    """)
    assert "the parent goes on" in printed
