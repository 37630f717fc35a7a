"""Re-entrant calls: a signal handler that calls, resets or closes during a call gets an error, and the call
that it interrupts is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron import DeviceError

MESSAGE = "re-entrant call: a signal handler called this method while a call was running on this thread"


def test_a_call_within_a_call(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a certain moment: nothing is closed, and the call ends as usual."""
    x = np.ones((3, 7), np.float32)
    with pteron.load(programs / "mlp_dynamic.pte") as program, program.sequence() as other:
        method, refused = program["forward"], []
        right = method(x)
        run = type(method.delegates[0]).run

        def interrupted(*arguments: object) -> object:
            for work in (lambda: method(x), method.reset, program.close, lambda: other["forward"](x)):
                with pytest.raises(DeviceError, match=MESSAGE):
                    work()
                refused.append(1)
            return run(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(type(method.delegates[0]), "run", interrupted)
        np.testing.assert_array_equal(method(x)[0], right[0])
        assert len(refused) == 4


def test_a_call_without_outputs(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails after it ran: the next raises StateLost, or starts from the states before it."""
    with pteron.load(programs / "mutable_buffer_host.pte") as program, program.sequence() as apart:
        method = program["forward"]
        x = np.ones((3, method.inputs[0].shape_max[1]), np.float32)
        right = [apart["forward"](x) for _ in range(2)]
        method(x)
        with monkeypatch.context() as patch:
            patch.setattr("pteron.runtime.method.result", _no_memory)
            with pytest.raises(MemoryError):
                method(x)
        try:
            found = method(x)
        except pteron.StateLost:
            return
        np.testing.assert_array_equal(found[0], right[1][0])


def _no_memory(*_: object) -> None:
    raise MemoryError
