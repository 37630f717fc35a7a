"""One command buffer of wgpu's library, from its recording to the queue: Ctrl-C loses none.

The library never frees a command buffer that was not submitted. So each has an owner from the moment it is
finished (`handles.py`), which knows whether it was submitted, whatever was interrupted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pteron.errors import DeviceError, DeviceLost
from pteron.gpu.commands import Command
from pteron.gpu.native import Report, checked
from pteron.gpu.open_device import OpenDevice
from pteron.gpu.spoiled import where_it_frees

_RECORDING = "recording commands"


class CommandBuffer(ABC):
    """Commands that run as often as they are submitted, and may be recorded ahead, once at a time.

    wgpu's library ends the process where a command buffer is invalid, or a buffer in it was freed or is
    mapped: so what it reports of a recording stays with it, and buffers are looked at before it is submitted.
    """

    def __init__(self, device: OpenDevice, commands: Sequence[Command]) -> None:
        """The commands are those whose buffers are looked at."""
        self._device = device
        self._commands = commands
        self._finished: list[Any] = []  # the recording, released with the last reference to it
        self._report = Report(_RECORDING)
        self._numbers: list[int] = []  # of its submission

    @abstractmethod
    def encode(self, finished: list[Any]) -> None:
        """Record the commands; the list gets the command buffer as `handles.finish` puts it there."""

    @property
    def is_ready(self) -> bool:
        """Whether it is recorded, valid, and not submitted yet."""
        return bool(self._finished) and not self._numbers and self._report.message is None

    @property
    def is_spent(self) -> bool:
        """Whether what was recorded is submitted."""
        return bool(self._numbers)

    def record(self) -> None:
        """Record the commands for the next `submit`. What is wrong with them is raised."""
        if not self.is_ready:
            self._record()

    def submit(self) -> int:
        """Run the commands without waiting; the submission's number, by which it can be waited for."""
        with self._device.lock:
            return self.run()

    def run(self) -> int:
        """As `submit`, where somebody has the device's lock for this thread. Ctrl-C is heeded before the
        commands are recorded, or after they were submitted."""
        try:
            if not self.is_ready:
                self._record()
            return self._submit()
        except DeviceError:
            raise
        except BaseException:
            with suppress(DeviceError):
                if self.is_ready:
                    self._submit()
            raise

    def _record(self) -> None:
        self._finished.clear()
        self._numbers.clear()
        try:
            where_it_frees(checked, self._report, self.encode, self._finished)
        except DeviceLost as error:
            raise self._device.lost(_RECORDING) from error

    def _submit(self) -> int:
        self._device.check_there(self._commands)
        number = self._device.submit(self._finished[0], self._numbers)
        self._finished.clear()
        return number
