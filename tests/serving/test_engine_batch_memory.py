"""Memory of the batch: allocated at the second request, with as many slots as fit, or none. The engine
reports the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from engine_fixtures import MODEL, A, B, Watched, asked, at_once, read_all, tokens, tokens_alone

from pteron import Device, DeviceError, OutOfMemory, UnsupportedError
from pteron.llm import LLM, Grammar, Sampling
from pteron.llm.arguments import SEQUENCES_MAX
from pteron.llm.engine.batched_model import BatchedModel
from pteron.serving import Engine

PROMPTS = [(3 + index, *range(60 + 9 * index, 64 + 10 * index)) for index in range(7)]
Shrink = Callable[[int], None]


@pytest.fixture
def rooms(tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Shrink:
    """Limits how many KV caches fit in one buffer: the device refuses larger ones."""
    assert tiny_llm.model.delegate is not None
    largest = max(state.bytes for state in tiny_llm.model.delegate.executable.states.values())
    made = Device.create_buffer

    def shrink(caches: int) -> None:
        def refusing(device: Device, size: int, label: str, **options: Any) -> Any:
            if "state" in label and size > caches * largest:
                raise OutOfMemory(f"no room for {size} bytes")
            return made(device, size, label, **options)

        monkeypatch.setattr(Device, "create_buffer", refusing)

    return shrink


def test_one_request_takes_one_cache(tiny_llm: LLM) -> None:
    device, pool = tiny_llm.model.device, tiny_llm.pool
    (right,) = tokens_alone(tiny_llm, [asked(A)])
    before = device.buffer_bytes
    with Engine(tiny_llm) as engine:
        for _ in range(2):
            assert tokens(engine.submit(asked(A)).pieces()) == right
        assert (engine.slots, engine.load.slots, pool.batched) == (0, 0, None)
        assert engine.load.cache_bytes == tiny_llm.sequence_bytes
        assert device.buffer_bytes - before < tiny_llm.sequence_bytes
        assert engine.stepping == "each sequence steps alone: no two requests have run at once"
        answers = at_once(engine, [asked(A), asked(B)])
        assert tokens(answers[0].pieces()) == right
        assert len(answers[1].pieces()) == 8
        assert engine.slots == engine.load.slots == SEQUENCES_MAX
        assert engine.load.cache_bytes == SEQUENCES_MAX * tiny_llm.sequence_bytes
        assert device.buffer_bytes - before >= (SEQUENCES_MAX - 1) * tiny_llm.sequence_bytes
        assert engine.stepping == f"up to {SEQUENCES_MAX} sequences step as one batch"


@pytest.mark.long(every=12)  # these have every value of each parameter
@pytest.mark.parametrize("at", ["begin", "prefill", "step"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sampling": Sampling(temperature=0.9, repetition_penalty=1.2, seed=3)},
        {"sampling": Sampling(logit_bias={5: 2.0}, frequency_penalty=0.5)},
    ],
    ids=["likeliest", "drawn", "biased"],
)
def test_a_running_request_moves_into_a_slot(
    engine: Engine, watched: Watched, at: str, settings: dict[str, Any]
) -> None:
    """A sequence moves into a slot during prefill or decode, and its tokens stay the same as alone."""
    llm = engine.llm
    assert isinstance(llm, LLM)
    requests = [asked(A, 20, **settings), asked(B, 12, **settings), asked(PROMPTS[0], 9)]
    right = tokens_alone(llm, requests)
    found = tokens(engine.submit(requests[2]).pieces())  # its sequence is idle then
    (first,) = watched.submit(requests[:1], at, 1)
    assert engine.slots == 0
    second = engine.submit(requests[1])
    watched.go()
    assert [tokens(first.pieces()), tokens(second.pieces()), found] == right
    assert engine.slots == SEQUENCES_MAX
    assert engine.load.cache_bytes == SEQUENCES_MAX * llm.sequence_bytes  # the idle one moved too
    again = engine.submit(asked((*PROMPTS[0], *found[:3], 7), 2))
    again.pieces()
    assert again.statistics.reused_tokens == len(PROMPTS[0]) + 3


def test_a_running_request_with_a_grammar_moves_into_a_slot(engine: Engine, watched: Watched) -> None:
    llm = engine.llm
    assert isinstance(llm, LLM)
    grammar = Grammar.regex(ByteTokenizer(), "[a-f]{9}", eos_ids=(2,))
    held = list(llm.generate(A, max_new_tokens=9, grammar=grammar, stop_ids=()))
    (right,) = tokens_alone(llm, [asked(B)])
    (first,) = watched.submit([asked(A, 9, grammar=grammar)], "step")
    second = engine.submit(asked(B))
    watched.go()
    assert tokens(first.pieces()) == tokens(held)
    assert tokens(second.pieces()) == right
    assert engine.slots


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("room", "slots"), [(15, 8), (7, 4), (3, 2)])
def test_as_many_slots_as_fit(tiny_llm: LLM, rooms: Shrink, room: int, slots: int) -> None:
    """If there are fewer slots than sequences, the others keep their own caches and step alone."""
    requests = [asked(ids, 9 + index) for index, ids in enumerate(PROMPTS)]
    right = tokens_alone(tiny_llm, requests)
    rooms(room)
    with Engine(tiny_llm) as engine:
        answers = at_once(engine, requests)
        assert read_all(answers) == right
        batched, live = tiny_llm.pool.batched, tiny_llm.pool.live
        assert batched is not None
        assert engine.slots == batched.slots.count == slots
        housed = slots - batched.slots.free
        assert housed == min(slots, live)
        assert engine.load.cache_bytes == (slots + live - housed) * tiny_llm.sequence_bytes
        assert [tokens(engine.submit(request).pieces()) for request in requests] == right
    assert live >= 5


def test_no_room_for_two(tiny_llm: LLM, rooms: Shrink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory for two slots the sequences step alone, and the allocation is not retried."""
    requests = [asked(ids, 9) for ids in (A, B, *PROMPTS)]
    right = tokens_alone(tiny_llm, requests)
    tried: list[int] = []
    make = BatchedModel.__init__

    def trying(batched: BatchedModel, model: Any, slots: int) -> None:
        tried.append(slots)
        make(batched, model, slots)

    monkeypatch.setattr(BatchedModel, "__init__", trying)
    rooms(1)
    before = tiny_llm.model.device.buffer_bytes
    with pytest.raises(OutOfMemory, match="no room for"):
        Engine(tiny_llm, batched=True)
    assert tiny_llm.model.device.buffer_bytes == before
    tried.clear()
    with Engine(tiny_llm) as engine:
        answers = at_once(engine, requests)
        assert read_all(answers) == right
        assert engine.slots == 0
        assert "each sequence steps alone: no room for" in engine.stepping
        assert tiny_llm.pool.bytes == tiny_llm.pool.live * tiny_llm.sequence_bytes
    assert tried == [16, 8, 4, 2]


def test_listeners(tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each listener is called once with the decision, whether it was added before or after it."""
    messages: list[str] = []
    with Engine(tiny_llm, batched=False) as engine:
        engine.add_stepping_listener(messages.append)
    assert messages == ["each sequence steps alone: batched=False"]
    messages.clear()
    with Engine(tiny_llm) as engine:
        engine.add_stepping_listener(messages.append)
        engine.submit(asked(A)).pieces()
        assert not messages
        answers = at_once(engine, [asked(A), asked(B), asked(A)])
        assert all(len(answer.pieces()) == 8 for answer in answers)
        engine.add_stepping_listener(messages.append)
    assert messages == ["up to 16 sequences step as one batch"] * 2


def test_one_sequence_alone(device: Device) -> None:
    """With one sequence there is no batch, and the reason given is not a lack of memory."""
    with LLM(MODEL, ByteTokenizer(), device=device, sequences=1) as llm:
        with pytest.raises(UnsupportedError, match=r"^\S+ cannot be batched: only one sequence is allowed"):
            Engine(llm, batched=True)
        with Engine(llm) as engine:
            answers = at_once(engine, [asked(A), asked(B)])
            assert all(len(answer.pieces()) == 8 for answer in answers)
            assert engine.slots == 0


def test_an_unexpected_failure_of_batching(tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """If batching fails for an unexpected reason, all answers are still right: sequences step alone."""
    requests = [asked(A), asked(B)]
    right = tokens_alone(tiny_llm, requests)

    def failing(*_: object) -> None:
        raise DeviceError("unforeseen")

    monkeypatch.setattr(BatchedModel, "allocate", failing)
    with Engine(tiny_llm) as engine:
        answers = at_once(engine, requests)
        assert read_all(answers) == right
        assert engine.stepping == "each sequence steps alone: unforeseen"


def test_a_stream_of_the_model_keeps_its_cache(device: Device) -> None:
    """The sequence of the model's own stream does not move into a slot while the engine runs."""
    with LLM(MODEL, ByteTokenizer(), device=device, sequences=4) as llm:
        right = tokens_alone(llm, [asked(ids, 12) for ids in (A, B, PROMPTS[0])])
        stream = llm.generate(A, max_new_tokens=12, stop_ids=())
        found = [next(stream).token]
        with Engine(llm) as engine:
            answers = at_once(engine, [asked(B, 12), asked(PROMPTS[0], 12)])
            assert read_all(answers) == right[1:]
            assert engine.slots == 4
            assert engine.load.cache_bytes == 5 * llm.sequence_bytes
            assert found + [piece.token for piece in stream] == right[0]
