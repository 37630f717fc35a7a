"""Devices that fail: what a GPU call raises, injected at the n-th of all calls of a kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pteron import Device, DeviceError
from pteron.gpu import Commands, Readback

# All device calls of a generation: name -> (class, function).
CALLS: dict[str, tuple[type, str]] = {
    "write": (Device, "write"),
    "create": (Device, "create_buffer"),
    "staging": (Device, "readback"),
    "submit": (Commands, "submit_locked"),
    "map": (Readback, "begin"),
    "peek": (Readback, "peek"),
    "fill": (Readback, "fill"),
}
MESSAGE = "injected"


class Faults:
    """Makes the n-th call from now on fail, before or after it does its work."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, calls: Mapping[str, tuple[type, str]] = CALLS
    ) -> None:
        self._at: dict[str, int] = {}
        self._after = False
        self._thread: threading.Thread | None = None
        self.count = 0  # calls of the armed kind so far
        for name, (owner, function) in calls.items():
            monkeypatch.setattr(owner, function, self._wrapped(name, getattr(owner, function)))

    def arm(self, name: str, at: int, *, after: bool = False) -> None:
        """Fail once, at the call of this number (from 0 on) that this thread makes."""
        self._at, self._after, self.count = {name: at}, after, 0
        self._thread = threading.current_thread()

    def disarm(self) -> bool:
        """Fail no more; whether it failed."""
        failed = not self._at
        self._at = {}
        return failed

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            is_due = False
            if name in self._at and threading.current_thread() is self._thread:
                is_due = self.count == self._at[name]
                self.count += 1
            if not is_due:
                return call(*arguments, **options)
            self._at = {}
            if self._after:
                call(*arguments, **options)
            raise DeviceError(MESSAGE)

        return wrapper
