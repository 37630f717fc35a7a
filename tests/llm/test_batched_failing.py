"""Batch slots on a device that fails: creation succeeds completely or leaves nothing behind."""

from __future__ import annotations

import numpy as np
import pytest
from faulty import Faults

from pteron import Device, DeviceError, OutOfMemory
from pteron.gpu import States
from pteron.llm import LanguageModel
from pteron.llm.batched_model import BatchedModel


def in_use(device: Device) -> tuple[int, int]:
    """Bytes of all buffers, and how many weights there are."""
    return device.buffer_bytes, len(device.uploads)


def test_a_failed_creation_leaves_nothing(q4: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the creation of any buffer fails, earlier buffers are freed, and slots can be created later."""
    q4.prefill([1, 2, 3])
    before = in_use(q4.device)
    faults, at = Faults(monkeypatch), 0
    while True:
        faults.arm("create", at, after=at % 2 == 1)
        try:
            batched = BatchedModel(q4, 5)
        except DeviceError:  # its traceback references the buffers: they must be freed before it is
            assert faults.disarm()
            assert in_use(q4.device) == before, at
            assert q4.delegate is not None
            assert q4.delegate.session.slots is None
            at += 1
        else:
            break
    assert not faults.disarm()
    assert at >= 10
    assert in_use(q4.device) > before
    batched.close()
    assert in_use(q4.device) == before


@pytest.mark.parametrize("error", [OutOfMemory("no room"), DeviceError("no copy")])
def test_a_sequence_that_cannot_move_stays(
    q4: LanguageModel, monkeypatch: pytest.MonkeyPatch, error: DeviceError
) -> None:
    """If the move fails, the sequence continues where it is and the slot is free again. Out of memory is not
    an error here."""

    def refused(*_: object) -> None:
        raise error

    right = q4.prefill([5, 6, 7]), q4.decode_one_token(8)
    q4.reset()
    q4.prefill([5, 6])
    batched = BatchedModel(q4, 2)
    before = in_use(q4.device)
    with monkeypatch.context() as patched:
        patched.setattr(States, "copy", refused)
        if isinstance(error, OutOfMemory):
            assert batched.move_into_slot(q4) is None
        else:
            with pytest.raises(DeviceError, match="no copy"):
                batched.move_into_slot(q4)
    assert batched.slots.free == 2
    assert in_use(q4.device) == before
    np.testing.assert_array_equal(q4.decode_one_token(7), right[0])
    assert batched.move_into_slot(q4) is not None
    np.testing.assert_array_equal(q4.decode_one_token(8), right[1])
    batched.close()
