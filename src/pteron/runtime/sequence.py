"""A sequence of calls: a program's methods with their own states."""

from __future__ import annotations

from collections.abc import Callable

from pteron.errors import DeviceError
from pteron.runtime.loaded_method import LoadedMethod, NotCopyable
from pteron.runtime.method import Method


class Sequence(NotCopyable):
    """`sequence["forward"](x)` runs a method of a program with this sequence's own caches and mutated
    buffers. Weights, kernels and plans belong to the program, so a further sequence only takes memory for its
    states."""

    def __init__(self, load: Callable[[str], LoadedMethod]) -> None:
        self._load = load
        self._methods: dict[str, Method] = {}
        self._closed = False

    def __getitem__(self, name: str) -> Method:
        """A method; it is loaded onto the device at the first use."""
        found = self._methods.get(name)
        if found is None:
            self._check_open()
            made = Method(self._load(name))
            found = self._methods.setdefault(name, made)
            if found is not made:  # another thread was faster
                made.close()
            if self._closed:  # by another thread
                self.close()
                self._check_open()
        return found

    @property
    def state_bytes(self) -> int:
        """GPU memory of the states of methods used so far."""
        methods = list(self._methods.values())  # other threads may add or close some
        return sum(method.gpu_bytes.get("states", 0) for method in methods)

    def reset(self) -> None:
        """Set the states of all methods to their initial values."""
        for method in list(self._methods.values()):
            method.reset()

    def close(self) -> None:
        """Free the states."""
        self._closed = True
        for name, method in list(self._methods.items()):
            method.close()
            self._methods.pop(name, None)

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError("the sequence is closed")

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
