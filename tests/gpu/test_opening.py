"""Devices open in a thread of their own: who needs one waits for it, and hears why it could not be opened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import assert_outputs, read_cases

import pteron
from pteron.gpu import Device, open_device

request = open_device._request


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Devices that this test opens, apart from all others."""
    shared: dict[str, Device] = {}
    monkeypatch.setattr(Device, "_shared", shared)
    yield
    for opened in shared.values():
        opened.close()


def test_its_target_is_known_before_it_is_open(
    device: Device, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open = threading.Event()

    def slow(*arguments: Any) -> Any:
        may_open.wait()
        return request(*arguments)

    monkeypatch.setattr("pteron.gpu.open_device._request", slow)
    opening = Device.begin()
    assert opening.target == device.target
    assert opening is Device.begin()
    may_open.set()
    assert Device.open() is opening
    assert opening.handle is not device.handle


def test_a_device_that_cannot_be_opened(programs: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every use of the failed device raises the error; the next request for a device tries again."""

    def refused(*_: object) -> None:
        raise pteron.DeviceError("out of devices")

    (case, *_) = read_cases(programs / "mlp.npz")
    with pteron.load(programs / "mlp.pte") as program:
        monkeypatch.setattr("pteron.gpu.open_device._request", refused)
        failed = Device.begin()
        for _ in range(2):
            with pytest.raises(pteron.DeviceError, match="out of devices"):
                failed.check_open()
            with pytest.raises(pteron.DeviceError, match="out of devices"):
                program["forward"]
        monkeypatch.setattr("pteron.gpu.open_device._request", request)
        assert_outputs(program["forward"](*case.inputs), case.outputs)
        assert program.device is not failed
        failed.close()


@pytest.mark.parametrize("is_used", [True, False])
@pytest.mark.parametrize("end", ["closed", "lost"])
def test_every_use_of_a_device_that_ended_is_an_error(end: str, is_used: bool, device: Device) -> None:
    """Not only the first one; and closing it again does nothing."""
    ended = Device(device.adapter)
    if is_used:
        assert ended.handle is not device.handle
        assert ended.is_open
    if end == "closed":
        ended.close()
        error, says = pteron.DeviceError, f"{device.adapter} is closed"
    else:
        error, says = pteron.DeviceLost, f"{device.adapter} was lost (noticed while testing)"
        ended.mark_lost("testing")
        ended.mark_lost("testing later")
    uses: list[Callable[[], object]] = [
        ended.check_open,
        lambda: ended.handle,
        lambda: ended.queue,
        lambda: ended.poll(wait=False),
        lambda: ended.create_buffer(64, "late"),
    ]
    for use in (*uses, *uses):
        with pytest.raises(error, match=re.escape(says)):
            use()
        assert (ended.is_open, ended.is_usable) == (False, False)
    assert repr(ended) == f"<pteron.Device {device.adapter}, {end}>"
    ended.close()
    assert (ended.is_open, ended.is_closed) == (False, True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="drivers are found through Vulkan's loader")
@pytest.mark.parametrize(
    ("mebibytes", "advice"),
    [
        (4096, "; if a driver is there, 4,096 MiB of address space may be too few for it: raise `ulimit -v`"),
        (0, ""),
    ],
)
def test_why_there_is_no_adapter(mebibytes: int, advice: str) -> None:
    """A driver that is too large for the address space looks like none: either may be the reason."""
    limit = f"resource.setrlimit(resource.RLIMIT_AS, ({mebibytes} << 20, -1))" if mebibytes else ""
    script = f"import resource; {limit}\nimport pteron; pteron.Device.open()"
    without = {**os.environ, "VK_DRIVER_FILES": os.devnull, "VK_ICD_FILENAMES": os.devnull}
    done = subprocess.run([sys.executable, "-c", script], env=without, capture_output=True, text=True)
    (message,) = re.findall(r"DeviceError: no GPU adapter was found; (.*)", done.stderr)
    drivers = (
        "install a Vulkan driver, or for a software adapter: Debian/Ubuntu `apt install mesa-vulkan-drivers`"
    )
    assert message.startswith(drivers)
    assert message.endswith(f"`dnf install mesa-vulkan-drivers`{advice}")
