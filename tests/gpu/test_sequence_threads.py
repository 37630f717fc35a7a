"""A sequence that threads share: one method of a name, and none is left open behind its end."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

import pteron
from pteron import Device
from pteron.runtime import sequence as sequences
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.method import Method


class Hesitant(Method):
    """A method that is made while another thread does something."""

    meanwhile: threading.Event
    made: list[Method]

    def __init__(self, code: LoadedMethod) -> None:
        super().__init__(code)
        self.made.append(self)
        self.meanwhile.wait(10)


@pytest.fixture
def hesitant(monkeypatch: pytest.MonkeyPatch) -> type[Hesitant]:
    Hesitant.meanwhile, Hesitant.made = threading.Event(), []
    monkeypatch.setattr(sequences, "Method", Hesitant)
    return Hesitant


def test_two_threads_ask_for_the_same_method(
    programs: Path, device: Device, hesitant: type[Hesitant]
) -> None:
    with pteron.load(programs / "mutable_buffer.pte", device=device) as program:
        own = program.sequence()
        found: list[Method] = []
        threads = [threading.Thread(target=lambda: found.append(own["forward"])) for _ in range(2)]
        for thread in threads:
            thread.start()
        while len(hesitant.made) < 2:
            threads[0].join(0.01)
        hesitant.meanwhile.set()
        for thread in threads:
            thread.join(10)
        first, second = found
        assert first is second
        other = next(method for method in hesitant.made if method is not first)
        with pytest.raises(pteron.DeviceError, match="closed"):
            other.reset()
        first.reset()


def test_closed_while_a_thread_asks(programs: Path, device: Device, hesitant: type[Hesitant]) -> None:
    with pteron.load(programs / "mutable_buffer.pte", device=device) as program:
        gc.collect()
        own = program.sequence()
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                own["forward"]
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not hesitant.made:
            thread.join(0.01)
        own.close()
        hesitant.meanwhile.set()
        thread.join(10)
        assert [str(error) for error in errors] == ["the sequence is closed"]
        with pytest.raises(pteron.DeviceError, match="closed"):
            hesitant.made[0].reset()


def test_closed_while_its_bytes_are_counted(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pteron.load(programs / "multi_method.pte") as program:
        own = program.sequence()
        methods = [own["encode"], own["decode"]]

        def counted(method: Method) -> dict[str, int]:
            own.close()  # as another thread may, at any method
            return {"states": 4}

        monkeypatch.setattr(Method, "gpu_bytes", property(counted))
        assert own.state_bytes == 4 * len(methods)
        assert own.state_bytes == 0
