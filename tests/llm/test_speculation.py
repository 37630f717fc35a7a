"""Speculative decoding gives the tokens of plain decoding, from fewer steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from byte_tokenizer import ByteTokenizer
from checkpoints import NAMES, Golden
from engine_fixtures import at_once, same
from llm_fixtures import MODELS, B

import pteron
from pteron import Device, InputError, UnsupportedError
from pteron.dtypes import DType, Storage
from pteron.format.records import ProgramFile
from pteron.gpu import Command, submit
from pteron.graph import Graph
from pteron.host.tensors import View
from pteron.llm import LLM, LanguageModel, Piece, Sampler, Sampling
from pteron.llm.cache.options import CacheOptions
from pteron.llm.engine import speculation as speculation_module
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.speculation import (
    LOSS_STEPS,
    LOSS_STEPS_MAX,
    MISS_STEPS,
    Lookup,
    Proposer,
    Speculation,
    Speculator,
)
from pteron.llm.engine.steppers import BatchedStepper, Part, RequestFailed
from pteron.llm.engine.verifier import ROWS, Verifier
from pteron.llm.export import export_llm, read_checkpoint
from pteron.llm.model import Pace
from pteron.llm.network.options import Options
from pteron.runtime.outputs import Outputs
from pteron.serving import Engine, Request

TINY = MODELS / "tiny_llama_q4.pte"
COUNT = 30
A = B[:21]
SETTINGS: list[dict[str, Any]] = [
    {"top_logprobs": 3},
    {"temperature": 0.9, "seed": 5},
    {"temperature": 1.2, "seed": 7, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "logit_bias": {17: -100, 9: 2}},
    {"temperature": 0.8, "seed": 2, "presence_penalty": 0.7},
]


class Oracle(Proposer):
    """Proposes the right tokens, with a wrong one after every `wrong`."""

    right: list[int]
    wrong: int

    def __init__(self, *_: object) -> None:
        self.proposals: list[int] = []

    def propose(self, drawn: Sequence[int], most: int) -> list[int]:
        found = self.right[len(drawn) : len(drawn) + most]
        self.proposals.append(len(found))
        return [
            token if (len(drawn) + index + 1) % self.wrong else (token + 1) % 512
            for index, token in enumerate(found)
        ]

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def _models(device: Device) -> Iterator[tuple[LLM, LLM]]:
    plain = LLM(TINY, ByteTokenizer(), device=device)
    with plain, LLM(TINY, ByteTokenizer(), device=device, speculate="lookup") as speculating:
        yield plain, speculating


@pytest.fixture
def plain(_models: tuple[LLM, LLM]) -> LLM:
    _models[0].reset()
    return _models[0]


@pytest.fixture
def speculating(_models: tuple[LLM, LLM], monkeypatch: pytest.MonkeyPatch) -> LLM:
    """A model that verifies every proposal of an Oracle: each row costs little."""
    monkeypatch.setattr(speculation_module, "Lookup", Oracle)
    monkeypatch.setattr(Speculator, "cost", lambda _, rows: 1 + rows / 100)
    Oracle.right, Oracle.wrong = [], 1000
    _models[1].reset()
    return _models[1]


def generated(llm: LLM, prompt: Sequence[int] | str = A, **options: Any) -> list[Piece]:
    return list(llm.generate(prompt, **{"max_new_tokens": COUNT, "stop_ids": (), **options}))


def right(plain: LLM, wrong: int = 1000, **options: Any) -> list[Piece]:
    """The output of plain decoding, which the Oracle proposes from now on."""
    pieces = generated(plain, **options)
    Oracle.right, Oracle.wrong = [piece.token for piece in pieces], wrong
    return pieces


# Output --------------------------------------------------------------------------------------------


@pytest.mark.long(every=8)
@pytest.mark.parametrize("wrong", [1000, 5, 1])
@pytest.mark.parametrize("settings", SETTINGS, ids=["greedy", "sampled", "filtered", "penalised", "counted"])
def test_tokens_are_those_of_plain_decoding(
    plain: LLM, speculating: LLM, settings: dict[str, Any], wrong: int
) -> None:
    expected = right(plain, wrong, **settings)
    same(generated(speculating, **settings), expected)
    found = speculating.statistics
    assert found.new_tokens == COUNT
    assert found.accepted_tokens == 0 if wrong == 1 else found.accepted_tokens > 10
    assert found.proposed_tokens > found.accepted_tokens or wrong == 1000


def test_draws_of_a_verification_have_the_distribution_of_the_logits(device: Device) -> None:
    """Of 600 verifications, the tokens that are kept have the frequencies of plain sampling."""
    logits = np.array([[0.0, 1.0, 0.5, -1.0, 0.2], [1.0, 0.0, 0.0, 0.5, -0.5]], np.float32)
    proposal, width = 1, logits.shape[1]
    buffer = device.create_buffer(logits.nbytes, "logits")
    device.write(buffer, logits)
    view = View(buffer, 0, logits.shape, DType.F32, Storage.F32)
    sampler = Sampler(device, width, Sampling(temperature=1.0, seed=1))
    first, second = Counter[int](), Counter[int]()
    for step in range(0, 1200, 2):
        with device.lock:
            submit(device, sampler.draw_rows(view, step, 2))
            data = device.read(sampler.drawn, sampler.drawn_bytes)
        one, other = (sampler.read(data, step + row).token for row in range(2))
        first[one] += 1
        if one == proposal:  # accepted: the second row follows
            second[other] += 1
    for row, counts in zip(logits, (first, second), strict=True):
        expected = np.exp(row) / np.exp(row).sum() * sum(counts.values())
        squares = sum((counts[token] - expected[token]) ** 2 / expected[token] for token in range(width))
        assert squares < 13.3  # 99% of chi-square with 4 degrees of freedom
    sampler.close()
    device.free(buffer)


@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_max_new_tokens_is_exact(plain: LLM, speculating: LLM, count: int) -> None:
    expected = right(plain)[:count]
    found = generated(speculating, max_new_tokens=count)
    assert [piece.token for piece in found][:count] == [piece.token for piece in expected]
    assert (speculating.statistics.new_tokens, speculating.statistics.finish_reason) == (count, "length")


def test_stops_within_a_proposal(plain: LLM, speculating: LLM) -> None:
    right(plain)
    stop = Oracle.right[12]
    expected = generated(plain, stop_ids=[stop])
    assert [piece.token for piece in generated(speculating, stop_ids=[stop])] == [p.token for p in expected]
    assert speculating.statistics.finish_reason == "stop"
    text = "".join(piece.text for piece in generated(plain))
    assert len(text) > 8
    end = text[5:7]
    kept = "".join(piece.text for piece in generated(speculating, stop=end))
    assert kept == "".join(piece.text for piece in generated(plain, stop=end))


def test_context_ends_within_a_proposal(plain: LLM, speculating: LLM) -> None:
    expected = right(plain, max_new_tokens=500)
    same(generated(speculating, max_new_tokens=500), expected)
    assert speculating.statistics.finish_reason == "context"


def test_rejected_tokens_do_not_stay_in_the_cache(plain: LLM, speculating: LLM) -> None:
    expected = right(plain, 4)
    found = generated(speculating)
    tokens = speculating.pool.rows().tokens
    assert tokens == [*A, *(piece.token for piece in expected[: COUNT - 1])]
    more = [*A, *(piece.token for piece in found), 7, 8, 9]
    plain.reset()
    continued = right(plain, 6, prompt=more)
    same(generated(speculating, more), continued)
    assert speculating.statistics.reused_tokens >= len(A) + COUNT - 1


def test_a_generation_that_is_left_early_keeps_the_cache_right(plain: LLM, speculating: LLM) -> None:
    expected = right(plain)
    stream = speculating.generate(A, max_new_tokens=COUNT, stop_ids=())
    assert [next(stream).token for _ in range(7)] == Oracle.right[:7]
    stream.close()
    same(generated(speculating), expected)


def test_speculation_is_off_for_a_request(plain: LLM, speculating: LLM) -> None:
    expected = right(plain)
    same(generated(speculating, speculate=False), expected)
    assert speculating.statistics.proposed_tokens == 0
    same(generated(speculating, resident=False), expected)
    assert speculating.statistics.proposed_tokens == 0


# Engine --------------------------------------------------------------------------------------------


@pytest.mark.long(every=2)
@pytest.mark.parametrize("batched", [True, False], ids=["together", "one by one"])
def test_several_requests(plain: LLM, speculating: LLM, batched: bool) -> None:
    """Requests that speculate and requests that do not run at once, each as alone."""
    expected = right(plain, 7)
    sampled: dict[str, Any] = {"temperature": 0.9, "seed": 3, "frequency_penalty": 0.5}
    others = [generated(plain, B), generated(plain, B, **sampled)]
    requests = [
        Request(tuple(A), COUNT, stop_ids=frozenset()),
        Request(tuple(B), COUNT, stop_ids=frozenset(), speculate=False),
        Request(tuple(B), COUNT, Sampling(**sampled), stop_ids=frozenset()),
        Request(tuple(A), COUNT, stop_ids=frozenset()),
    ]
    with Engine(speculating, batched=batched) as engine:
        before, answers = engine.load, at_once(engine, requests)
        found = [answer.pieces() for answer in answers]
        load = engine.load
    for pieces, right_ones in zip(found, [expected, *others, expected], strict=True):
        same(pieces, right_ones)
    assert answers[0].statistics.accepted_tokens > 0
    assert answers[1].statistics.proposed_tokens == 0
    totals = [each.statistics for each in answers]
    proposed, accepted = (
        sum(getattr(each, f"{kind}_tokens") for each in totals) for kind in ("proposed", "accepted")
    )
    assert load.proposed_tokens - before.proposed_tokens == proposed > accepted
    assert load.accepted_tokens - before.accepted_tokens == accepted


def test_a_proposal_that_fails_ends_only_its_request(
    plain: LLM, speculating: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proposals of the others are made in the same turn, before it forms parts."""
    expected, turns = right(plain, 7), list[str]()
    prepare, parts = BatchedStepper.prepare, BatchedStepper.parts

    def prepare_but_one(self: BatchedStepper, requests: Sequence[RunningRequest]) -> None:
        turns.append("is not prepared")
        if len(requests) == 3:
            raise RequestFailed(requests[0]) from RuntimeError("the draft is wrong")
        prepare(self, requests)
        turns[-1] = "is prepared"

    def noted(self: BatchedStepper, requests: Sequence[RunningRequest]) -> list[Part]:
        turns.append("has parts")
        return parts(self, requests)

    monkeypatch.setattr(BatchedStepper, "prepare", prepare_but_one)
    monkeypatch.setattr(BatchedStepper, "parts", noted)
    with Engine(speculating, batched=True) as engine:
        first, *others = at_once(engine, [Request(tuple(A), COUNT, stop_ids=frozenset())] * 3)
        for answer in others:
            same(answer.pieces(), expected)
        with pytest.raises(RuntimeError, match="the draft is wrong"):
            first.pieces()
    assert ("is not prepared", "is prepared") in pairwise(turns)
    assert ("is not prepared", "has parts") not in pairwise(turns)


def test_a_cancelled_request_leaves_a_right_cache(plain: LLM, speculating: LLM) -> None:
    expected = right(plain, 6)
    with Engine(speculating) as engine:
        answer = engine.submit(Request(tuple(A), COUNT, stop_ids=frozenset()))
        next(iter(answer))
        answer.cancel()
        same(engine.submit(Request(tuple(A), COUNT, stop_ids=frozenset())).pieces(), expected)


# Draft models --------------------------------------------------------------------------------------


@pytest.mark.long(every=4)
@pytest.mark.parametrize("settings", SETTINGS[:4], ids=["greedy", "sampled", "filtered", "penalised"])
def test_draft_model(
    plain: LLM, device: Device, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights with other activations: nearly all proposals are right, also of sampled tokens."""
    monkeypatch.setattr(Speculator, "cost", lambda _, rows: 1 + rows / 100)
    expected = generated(plain, **settings)
    with (
        LLM(MODELS / "tiny_llama_8da4w.pte", ByteTokenizer(), device=device) as draft,
        LLM(TINY, ByteTokenizer(), device=device, speculate=draft) as llm,
    ):
        for _ in range(2):  # with an empty cache, and with a full one
            same(generated(llm, **settings), expected)
            found = llm.statistics
            assert found.accepted_tokens > (0 if "repetition_penalty" in settings else 20)


@pytest.mark.long
def test_a_draft_model_by_name_has_the_same_context_and_cache(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded with the model: weights are on the GPU before the first request."""
    used: list[CacheOptions] = []
    adapt = CacheOptions.adapt

    def noted(self: CacheOptions, file: ProgramFile, graph: Graph) -> Graph:
        used.append(self)
        return adapt(self, file, graph)

    monkeypatch.setattr(CacheOptions, "adapt", noted)
    with LLM("stories15m", device=device, speculate="stories15m", context=100, cache="f32") as llm:
        assert [(options.context, options.cache) for options in used] == [(100, "f32")] * 2
        draft = llm._draft
        assert draft is not None
        assert draft.model.context == llm.model.context == 100
        assert draft.pool.sequences_max == llm.pool.sequences_max
        before = draft.model.method.gpu_bytes["weights"]
        assert before > 1 << 20
        generated(llm, "Once upon a time")
        assert llm.statistics.proposed_tokens > 0
        assert draft.model.method.gpu_bytes["weights"] == before


def test_other_tokenizers_are_refused(device: Device) -> None:
    class Other(ByteTokenizer):
        def token_bytes(self, token: int) -> bytes:
            return b"?" if token == 70 else super().token_bytes(token)

    with LLM(TINY, Other(), device=device) as draft, pytest.raises(InputError, match="token 70 is"):
        LLM(TINY, ByteTokenizer(), device=device, speculate=draft)


# Refusals ------------------------------------------------------------------------------------------


def test_state_that_cannot_be_rewound_is_refused(device: Device, tmp_path: Path) -> None:
    folder = Golden.load("lfm2").write_folder(tmp_path / "lfm2")
    export_llm(folder, tmp_path / "model", quantize=None, embedding_bits=None, max_seq_len=16)
    with pytest.raises(UnsupportedError, match=r"model\.pte cannot speculate: its state cannot be rewound"):
        LLM(tmp_path / "model", device=device, speculate="lookup")


# Verification --------------------------------------------------------------------------------------


def verified(model: LanguageModel, tokens: list[int]) -> np.ndarray:
    """The logits of each of the tokens, which follow those that the model has read."""
    verifier, found = Verifier(model), list[View]()

    def keep(outputs: Outputs) -> list[Command]:
        found.extend(each for each in outputs if isinstance(each, View))
        return []

    with model.device.lock:
        verifier.submit(model, tokens, keep)
        (view,) = found
        data = model.device.read(view.buffer, view.nbytes)
    verifier.close()
    return np.frombuffer(data, view.storage.numpy).reshape(-1, model.vocabulary)[: len(tokens)]


@pytest.mark.long(every=2)
@pytest.mark.usefixtures("on_route")
@pytest.mark.parametrize("name", ["q4_full", "q4_static", "8da4w", "q4_fp16"])
def test_rows_have_the_logits_of_single_steps(device: Device, name: str) -> None:
    """Programs with all logits, of one token per call, and of other element types."""
    with pteron.load(MODELS / f"tiny_llama_{name}.pte", device=device) as program:
        model, prompt = LanguageModel(program), [1, 40, 41, 42]
        model.prefill(prompt)
        tokens = [7, 300, 12, 44, 9]
        expected = np.stack([model.decode_one_token(token) for token in tokens])
        model.rewind_to(len(prompt), model.claim())
        found = verified(model, tokens)
        # Half floats have 11 bits; a sum in another order may round an 8-bit activation otherwise.
        rounded = name == "8da4w" or (name == "q4_fp16" and device.target.shader_f16)
        assert np.abs(found - expected).max() <= (2e-3 if rounded else 1e-5) * np.abs(expected).max()
        assert (found.argmax(1) == expected.argmax(1)).all()
        assert (model.position, model.tokens) == (len(prompt) + 5, prompt + tokens)


ALONE = {"ministral3"}  # scales queries by position, which rows of several sequences cannot yet


@pytest.mark.long(every=60)
@pytest.mark.parametrize("name", NAMES)
def test_rows_have_the_logits_of_hugging_face(device: Device, name: str, tmp_path: Path) -> None:
    """Every family, as programs with logits of the last token only."""
    golden = Golden.load(name)
    options = Options(None, embedding_bits=None, max_seq_len=16, max_context_len=64)
    read_checkpoint(golden.write_folder(tmp_path)).program(options).write(tmp_path / "model.pte")
    with pteron.load(tmp_path / "model.pte", device=device) as program:
        model = LanguageModel(program)
        model.prefill(golden.prompt[:24])
        if not model.can_rewind:
            with pytest.raises(UnsupportedError, match="its state cannot be rewound"):
                Verifier(model)
            return
        if name in ALONE:
            with pytest.raises(UnsupportedError, match="cannot run in rows"):
                Verifier(model)
            return
        found = verified(model, golden.prompt[24:37])
        assert np.abs(found - golden.logits[24:37]).max() <= 1e-5 * np.abs(golden.logits).max()


def test_eight_bit_programs(device: Device, tmp_path: Path) -> None:
    """Programs that are built by default."""
    golden = Golden.load("llama")
    options = Options("8w", embedding_bits=None, max_seq_len=16, max_context_len=64)
    read_checkpoint(golden.write_folder(tmp_path)).program(options).write(tmp_path / "model.pte")
    with pteron.load(tmp_path / "model.pte", device=device) as program:
        model, prompt = LanguageModel(program), golden.prompt
        model.prefill(prompt[:24])
        expected = np.stack([model.decode_one_token(token) for token in prompt[24:30]])
        model.rewind_to(24, model.claim())
        assert np.abs(verified(model, prompt[24:30]) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.usefixtures("speculating")
def test_plans_are_made_at_load(device: Device) -> None:
    """No verification waits for a plan and its kernels."""
    Oracle.right = [7] * COUNT
    with LLM(TINY, ByteTokenizer(), device=device, speculate="lookup") as llm:
        assert llm.speculator is not None
        counters = llm.speculator.verifier._graph.session.counters
        assert counters.plans == len(ROWS)
        generated(llm)
        assert counters.calls > 0
        assert counters.plans == len(ROWS)


def test_lookup_is_scored_by_what_is_drawn() -> None:
    lookup = Lookup([1, 2, 3, 4, 5, 9])
    assert lookup.score([]) == []
    assert lookup.score([1]) == []  # nothing would have been proposed
    assert lookup.score([1, 2, 3, 4]) == [True, True]  # after 1, 2 and after 2, 3
    assert lookup.score([1, 2, 3, 4, 7]) == [False]
    assert lookup.propose([1, 2, 3, 4, 7, 1, 2], 2) == [3, 4]


def test_lookup_is_verified_once_it_would_have_been_right(monkeypatch: pytest.MonkeyPatch) -> None:
    speculator = speculation_of(monkeypatch, {2: 1.5, 4: 1.8, 8: 2.2, 16: 3.0}).speculator
    speculation, text = Speculation(speculator, Lookup(range(40))), [*range(50, 60), *range(20)]
    begun = []
    for count in range(len(text) + 1):
        speculation.observe(text[:count])
        speculation.propose(text[:count], 100, 0)
        begun += [count] if speculation.proposal else []
    assert begun  # in the part that repeats the prompt
    assert 12 < begun[0] < 20
    speculation.take(0)
    for _ in range(3):
        speculation.proposal = [1, 2, 3]
        speculation.take(0)
    speculation.propose([*text, 77], 100, 0)
    assert speculation.is_watching  # plain steps again
    other = Speculation(speculator, Lookup(range(40)))
    for count in range(200):
        other.observe(range(100, 100 + count))
        other.propose(range(100, 100 + count), 100, 0)
    assert other.is_watching  # a text that repeats nothing is never interrupted


# Proposals and when they pay -----------------------------------------------------------------------


def test_lookup_proposes_what_followed_the_last_match() -> None:
    lookup = Lookup([1, 2, 3, 4, 5, 9, 2, 3, 7])
    assert lookup.propose([], 3) == []
    assert lookup.propose([2, 3], 3) == [7, 2, 3]
    assert lookup.propose([2, 3, 4, 5], 2) == [9, 2]
    assert lookup.propose([2, 3, 4, 5, 8, 8, 8], 4) == [8, 8, 8, 8]


class _Model:
    """What a Speculator needs of a model."""

    vocabulary, context, pace = 512, 64, Pace()


def speculation_of(monkeypatch: pytest.MonkeyPatch, costs: dict[int, float]) -> Speculation:
    monkeypatch.setattr(speculation_module, "Verifier", Mock())
    speculator = Speculator(_Model())  # type: ignore[arg-type]
    speculator._pace = Pace(seconds=1.0)
    speculator.seconds = costs
    Oracle.right, Oracle.wrong = list(range(1000)), 10000
    return Speculation(speculator, Oracle())


def test_the_best_number_of_rows_depends_on_acceptance_and_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    speculation = speculation_of(monkeypatch, {2: 1.1, 4: 1.3, 8: 1.7, 16: 2.5})
    for accepted, expected in ((3, {16}), (0, {1})):
        for _ in range(40):
            speculation.proposal = [0] * 3
            speculation.take(accepted)
        assert {speculation.best_rows()} == expected
    slow = speculation_of(monkeypatch, dict(zip(ROWS, ROWS, strict=True)))  # as on a CPU
    assert slow.best_rows() == 1


def test_a_batch_of_many_leaves_less_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    speculation = speculation_of(monkeypatch, {2: 1.1, 4: 1.3, 8: 1.7, 16: 2.5})
    for _ in range(40):
        speculation.proposal = [0] * 3
        speculation.take(3)
    assert speculation.best_rows(1) > 1
    assert speculation.best_rows(15) == 1


def test_proposals_stop_where_they_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain steps in between double until a trial is accepted."""
    speculation = speculation_of(monkeypatch, {rows: 0.9 * rows for rows in ROWS})
    pauses, step = [], 0
    for _ in range(4):
        speculation.propose(range(step), 100, 0)
        assert not speculation.proposal
        pauses.append(speculation.until - step)
        step = speculation.until
        speculation.propose(range(step), 100, 0)  # the trial
        assert len(speculation.proposal) == ROWS[1] - 1
        speculation.take(0)
    assert pauses == [LOSS_STEPS, 2 * LOSS_STEPS, 4 * LOSS_STEPS, 8 * LOSS_STEPS]
    speculation.speculator.seconds = dict.fromkeys(ROWS, 1.0)
    speculation.propose(range(step + 500), 100, 0)  # cheap now, but its rate is low: a pause, then a trial
    step = speculation.until
    speculation.propose(range(step), 100, 0)
    speculation.take(3)
    speculation.propose(range(step + 4), 100, 0)
    assert speculation.proposal


def test_pauses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    speculation, step = speculation_of(monkeypatch, {rows: 0.9 * rows for rows in ROWS}), 0
    for count in range(7):
        speculation.propose(range(step), 100, 0)
        assert speculation.until - step == min(LOSS_STEPS << count, LOSS_STEPS_MAX)
        step = speculation.until
        speculation.propose(range(step), 100, 0)
        speculation.take(0)


def test_a_verification_as_slow_as_its_steps_is_hardly_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    speculation = speculation_of(monkeypatch, {rows: 1.5 * rows for rows in ROWS})
    speculation.propose([], 100, 0)
    assert speculation.until == LOSS_STEPS_MAX


def test_misses_let_plain_steps_run(monkeypatch: pytest.MonkeyPatch) -> None:
    speculation = speculation_of(monkeypatch, dict.fromkeys(ROWS, 1.0))
    Oracle.right = []
    ends, step = [], 0
    for _ in range(4):
        speculation.propose(range(step), 100, 0)
        ends.append(speculation.until - step)
        step = speculation.until
    assert ends == [*MISS_STEPS, MISS_STEPS[-1]]


def test_the_first_verification_of_a_size_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    speculator = speculation_of(monkeypatch, {}).speculator
    speculator.note_seconds(4, 100.0)
    assert 4 not in speculator.seconds
    speculator.note_seconds(4, 2.0)
    assert speculator.cost(4) == 2.0
    assert speculator.cost(2) <= 2.0 < speculator.cost(8)  # more rows than measured take at least as long


def test_a_request_cannot_choose_a_way(llm: LLM) -> None:
    with pytest.raises(InputError, match='speculate must be "lookup", a smaller model or an LLM, not True'):
        LLM("stories15m", speculate=True)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="speculate must be True or False, not 'lookup'; LLM"):
        llm("Once", speculate="lookup")
