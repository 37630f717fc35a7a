"""The most probable token of each row of logits, by slot: ties, infinities, NaNs, unused rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pteron.dtypes import DType
from pteron.gpu import Device
from pteron.llm.sampling.form import RING, Form
from pteron.llm.sampling.graphs import DRAWN, STEPS, TOKEN, batch_graph
from pteron.ops import Target
from pteron.ops.operand import State
from pteron.runtime.session import Session

pytestmark = pytest.mark.kernels

SLOTS = 7
CHOSEN = np.array([3, 0, -1, 6, 1, SLOTS], np.int32)
BEFORE = np.array([5, 0, 9, 31, 2, 7, 16], np.int32)  # positions


@pytest.fixture(params=["software", "hardware", "subgroups"])
def anywhere(request: pytest.FixtureRequest, device: Device) -> Target:
    if request.param == "subgroups":
        by_subgroups: Target = request.getfixturevalue("own_subgroups")
        return by_subgroups
    return replace(device.target, is_cpu=request.param == "software", subgroup_size=0)


def logits_of(vocabulary: int, dtype: str) -> np.ndarray:
    """Rows with an early tie, a late one, a NaN, infinities, and one in which all are alike."""
    rows = np.random.default_rng(vocabulary).normal(size=(len(CHOSEN), vocabulary)).astype(dtype)
    rows[0, [1, vocabulary // 2, vocabulary - 1]] = 9
    rows[1, vocabulary - 1] = 9
    rows[1, 0] = np.nan
    rows[3, :] = -np.inf
    rows[3, vocabulary - 2] = -4
    rows[4, :] = 1
    return rows


@pytest.mark.long(every=6)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("vocabulary", [3, 512, 2049, 5003])
def test_by_slot(vocabulary: int, dtype: str, anywhere: Target, device: Device) -> None:
    logits = logits_of(vocabulary, {"f32": "float32", "f16": "float16"}[dtype])
    session = Session.of(batch_graph(vocabulary, SLOTS, Form(), DType(dtype)), device, target=anywhere)
    states = session.states()
    device.write(states[State(STEPS)], BEFORE)
    device.write(states[State(TOKEN)], np.full(SLOTS, -7, np.int32))
    session.run([logits, CHOSEN], [None], states)
    tokens, positions, drawn = (
        np.frombuffer(device.read(states[State(id)], size), np.int32)
        for id, size in ((TOKEN, 4 * SLOTS), (STEPS, 4 * SLOTS), (DRAWN, 8 * SLOTS * RING))
    )
    ring = drawn.reshape(SLOTS, RING, 2)
    expected, grown = np.full(SLOTS, -7), BEFORE.copy()
    for row, slot in enumerate(CHOSEN):
        if not 0 <= slot < SLOTS:
            continue
        wide = logits[row].astype(np.float64)
        expected[slot], grown[slot] = int(np.nanargmax(wide)), BEFORE[slot] + 1
        token, bits = ring[slot, BEFORE[slot] % RING]
        assert token == expected[slot]
        logprob = np.int32(bits).view(np.float32)
        if np.isnan(wide).any():
            assert np.isnan(logprob)
        else:
            assert logprob == pytest.approx(wide.max() - np.logaddexp.reduce(wide), abs=2e-5)
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(positions, grown)
    assert np.count_nonzero(ring.any(-1)) <= 4  # nothing else was written
    states.close()
    session.close()
