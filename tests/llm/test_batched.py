"""A batch of sequences in one plan: each gets the logits and tokens that it gets alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from faulty import Faults

import pteron
from pteron import Device, DeviceError, InputError, OutOfMemory
from pteron.gpu import States
from pteron.llm import LanguageModel
from pteron.llm.engine.batched_model import BatchedModel, BatchRow
from pteron.llm.names.models import fetch
from pteron.llm.sampling import RING
from pteron.ops.operand import State
from pteron.passes.rewrite import REWRITES_VARIABLE

TINY = ["llama_q4", "llama_8da4w", "llama_fp32", "llama_q4_fp16", "llama_q4_emb4", "llama_q4_static"]
MODELS = [*(f"tiny_{name}" for name in TINY), "tiny_qwen3_fp32", "stories15m"]
STEPS, STEPS_FEW = 24, 12  # of the first sequences, and of the others
FIRST = 5
LENGTHS = (1, 7, 3, 12, 20, 2, 5, 17, 1, 9, 23, 4, 11)  # of prompts
# Logits differ from those of a sequence alone by the order of sums. With int8 activations, a difference in
# the last bit may become a whole int8 step.
TOLERANCE = {"tiny_llama_8da4w": 5e-2, "tiny_llama_q4_fp16": 5e-3}


@dataclass
class Alone:
    """Results of sequences that run one at a time: the prompts, the generated tokens, their logits."""

    prompts: list[list[int]]
    tokens: list[list[int]]
    logits: list[list[np.ndarray]]

    def agrees(self, row: int, found: list[int], tolerance: float) -> bool:
        """Whether a row gives the same tokens, up to a tie of two logits within the tolerance."""
        for logits, token, right in zip(self.logits[row], found, self.tokens[row], strict=False):
            if token != right:
                return bool(logits[right] - logits[token] <= 2 * tolerance * abs(logits).max())
        return True


def path_of(name: str, models: Path) -> Path:
    return fetch(name) / "model.pte" if name == "stories15m" else models / f"{name}.pte"


def alone(model: LanguageModel, count: int, steps: int | None = None, found: Alone | None = None) -> Alone:
    """Run the first `count` prompts that `found` does not have yet."""
    found = found or Alone([], [], [])
    random = np.random.default_rng(3)
    prompts = [random.integers(0, model.vocabulary, length).tolist() for length in LENGTHS[:count]]
    for row, prompt in enumerate(prompts):
        if row < len(found.prompts):
            continue
        model.reset()
        logits = [model.prefill(prompt)]
        tokens = [int(logits[0].argmax())]
        for _ in range(steps or (STEPS if row < FIRST else STEPS_FEW)):
            logits.append(model.decode_one_token(tokens[-1]))
            tokens.append(int(logits[-1].argmax()))
        found.prompts.append(prompt)
        found.tokens.append(tokens)
        found.logits.append(logits)
    return found


@pytest.fixture(scope="module", params=MODELS)
def named(request: pytest.FixtureRequest, models: Path) -> Iterator[tuple[str, LanguageModel, Alone]]:
    program = pteron.load(path_of(request.param, models))
    yield request.param, LanguageModel(program), Alone([], [], [])
    program.close()


def begin(batched: BatchedModel, prompts: list[list[int]]) -> tuple[list[LanguageModel], list[BatchRow]]:
    """Prefill sequences with all but the last prompt token; their first rows contain that token."""
    sequences = [batched.model.sequence() for _ in prompts]
    rows = []
    for sequence, prompt in zip(sequences, prompts, strict=True):
        if prompt[:-1]:
            sequence.prefill(prompt[:-1])
        slot = batched.slot_of(sequence)
        assert slot is not None
        rows.append(BatchRow(slot, len(prompt) - 1, prompt[-1]))
    return sequences, rows


def end(batched: BatchedModel, sequences: list[LanguageModel]) -> None:
    for sequence in sequences:
        sequence.close()
    batched.close()


def after(rows: list[BatchRow], steps: int) -> list[BatchRow]:
    """The rows some steps later, their tokens drawn on the GPU."""
    return [BatchRow(row.slot, row.position + steps, None if steps else row.token) for row in rows]


def poison(batched: BatchedModel) -> None:
    """Fill every cache with NaN."""
    for id in batched.batched.caches:
        buffer = batched.states[State(id)]
        batched.device.write(buffer, b"\xff" * buffer.size)


@pytest.mark.long(every=48)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_logits_and_tokens(count: int, named: tuple[str, LanguageModel, Alone]) -> None:
    name, model, expected = named
    if count in (2, 3, 8) and name != "tiny_llama_q4":
        pytest.skip("other models take fewer numbers of rows")
    alone(model, count, found=expected)
    batched = BatchedModel(model, len(LENGTHS))
    sequences: list[LanguageModel] = []
    poison(batched)
    try:
        sequences, rows = begin(batched, expected.prompts[:count])
        worst, tolerance = 0.0, TOLERANCE.get(name, 1e-5)
        steps = STEPS if count == FIRST else STEPS_FEW
        for step in range(steps + 1):
            now = [
                BatchRow(row.slot, row.position + step, found_rows[step - 1] if step else row.token)
                for row, found_rows in zip(rows, expected.tokens, strict=False)
            ]
            logits = batched.logits(now)
            for row, found in enumerate(logits):
                reference = expected.logits[row][step]
                worst = max(worst, float(abs(found - reference).max() / abs(reference).max()))
                likeliest = int(found.argmax())
                assert reference[likeliest] >= reference.max() - 2 * tolerance * abs(reference).max()
        assert worst < tolerance
    finally:
        end(batched, sequences)


@pytest.mark.long
def test_bursts(named: tuple[str, LanguageModel, Alone]) -> None:
    """Several steps in one submission, the next submitted before the last was read."""
    name, model, expected = named
    alone(model, 5, found=expected)
    batched = BatchedModel(model, 5)
    sequences: list[LanguageModel] = []
    try:
        sequences, rows = begin(batched, expected.prompts[:5])
        bursts, done = [], 0
        for steps in (1, RING, 7):
            bursts.append(batched.step(after(rows, done), steps))
            done += steps
            assert bursts[-1].count == steps
        found_rows: list[list[int]] = [[] for _ in rows]
        for burst in bursts:
            for row, drawn in enumerate(burst.read()):
                found_rows[row] += [each.token for each in drawn]
                assert all(-np.inf < each.logprob <= 0 for each in drawn)
        assert all(len(tokens) == STEPS for tokens in found_rows)
        if name == "tiny_llama_q4_fp16":  # adapters may break ties in either direction
            assert all(expected.agrees(row, tokens, TOLERANCE[name]) for row, tokens in enumerate(found_rows))
        else:
            assert found_rows == [tokens[:STEPS] for tokens in expected.tokens[:5]]
        assert batched.session.counters.plans <= 1
    finally:
        end(batched, sequences)


def test_from_the_first_position_to_the_last(q4: LanguageModel) -> None:
    """A row at position 0 in the same batch as one that fills its cache."""
    context = q4.context
    random = np.random.default_rng(5)
    full = random.integers(0, q4.vocabulary, context).tolist()
    q4.reset()
    last = q4.prefill(full)
    q4.reset()
    first = q4.prefill(full[:1])
    batched = BatchedModel(q4, 3)
    poison(batched)
    (sequence, other), _ = begin(batched, [full[:-1], full[:1]])
    sequence.reset()
    sequence.prefill(full[:-1])
    slots = [batched.slot_of(each) for each in (sequence, other)]
    logits = batched.logits(
        [BatchRow(slots[0] or 0, context - 1, full[-1]), BatchRow(slots[1] or 0, 0, full[0])]
    )
    np.testing.assert_allclose(logits[0], last, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits[1], first, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="65 tokens exceed a slot's 64"):
        batched.step([BatchRow(slots[0] or 0, context - 1, 1)], 2)
    end(batched, [sequence, other])


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny_llama_q4", "tiny_llama_8da4w", "tiny_qwen3_fp32"])
@pytest.mark.parametrize("route", ["no rewrites", "by workgroups", "by subgroups"])
def test_on_other_routes(
    name: str,
    route: str,
    models: Path,
    device: Device,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if route == "no rewrites":
        monkeypatch.setenv(REWRITES_VARIABLE, "none")
    else:
        is_wide = route == "by subgroups"
        target = request.getfixturevalue("own_subgroups") if is_wide else device.target
        monkeypatch.setattr(device, "target", replace(target, is_cpu=False))
    with pteron.load(models / f"{name}.pte") as program:
        model = LanguageModel(program)
        expected = alone(model, 10, 12)
        for count in (3, 10):
            batched = BatchedModel(model, 10)
            sequences, rows = begin(batched, expected.prompts[:count])
            drawn = batched.step(rows, 12).read()
            found_rows = [[each.token for each in row] for row in drawn]
            assert found_rows == [tokens[:12] for tokens in expected.tokens[:count]]
            end(batched, sequences)


def test_slots(q4: LanguageModel) -> None:
    batched = BatchedModel(q4, 2)
    first, second = batched.model.sequence(), batched.model.sequence()
    assert {batched.slot_of(first), batched.slot_of(second)} == {0, 1}
    assert batched.slot_of(q4) is None
    third = q4.sequence()  # with its own memory
    assert batched.slot_of(third) is None
    slot = batched.slot_of(second)
    second.close()
    again = batched.model.sequence()
    assert batched.slot_of(again) == slot
    with pytest.raises(InputError, match="in slots already"):
        BatchedModel(q4, 2)
    end(batched, [first, third, again])
    assert q4.sequence().delegate is not None


def test_a_slot_is_reset_alone(q4: LanguageModel) -> None:
    batched = BatchedModel(q4, 3)
    sequences = [batched.model.sequence() for _ in range(3)]
    assert q4.delegate
    sizes = {id: q4.delegate.executable.states[id].bytes for id in batched.batched.caches}

    def contents() -> list[list[bytes]]:
        return [sequence.delegate.states.read(sizes) for sequence in sequences if sequence.delegate]

    for sequence in sequences:
        sequence.prefill([1, 2, 3])
    first, _, last = contents()
    assert all(map(any, first))
    assert sequences[1].delegate
    sequences[1].delegate.reset()
    assert contents() == [first, [bytes(len(each)) for each in first], last]
    end(batched, sequences)


def test_padding_rows_store_nothing(q4: LanguageModel) -> None:
    """Nine rows run in a plan for ten, while the slot without a row reads a prompt."""
    random = np.random.default_rng(5)
    *prompts, prompt = (random.integers(0, q4.vocabulary, length).tolist() for length in (*[4] * 10, 20))
    expected = q4.prefill(prompt)
    batched = BatchedModel(q4, 12)
    sequences, rows = begin(batched, prompts)
    batched.step(rows)
    (first,) = (sequence for sequence in sequences if batched.slot_of(sequence) == 0)
    first.reset()
    first.prefill(prompt[:-1])
    batched.step([row for row in after(rows, 1) if row.slot != 0], 3).read()
    (found,) = batched.logits([BatchRow(0, len(prompt) - 1, prompt[-1])])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    end(batched, sequences)


def test_closed_memory_is_refused(q4: LanguageModel) -> None:
    """A sequence may have bound the closed buffers already, and submitting those would end the process."""
    assert BatchedModel.reason(q4) is None
    batched = BatchedModel(q4, 2)
    sequence, other = batched.model.sequence(), q4.sequence()
    sequence.prefill([1, 2, 3])
    sequence.decode_one_token(4)
    batched.close()
    with pytest.raises(DeviceError, match="is closed"):
        batched.step([BatchRow(0, 0, 1)])
    for call in (lambda: sequence.decode_one_token(5), lambda: sequence.submit([5]), sequence.reset):
        with pytest.raises(DeviceError, match="the batch memory of this sequence is closed"):
            call()
    sequence.close()
    other.close()


# A device that fails: creation succeeds completely or leaves nothing behind ----------------------


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
