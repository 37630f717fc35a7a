"""Several decode steps in one submission give the tokens of single steps, for every number of steps and
without the host in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, zip_longest

import numpy as np
import pytest
from faulty import Faults
from llm_fixtures import MODELS

import pteron
from pteron import Device, DeviceError
from pteron.families.attention import call as attention
from pteron.gpu import Copy, Recording, Replay, submit
from pteron.llm import LanguageModel, LoopCounters, Sampler, Sampling, generate_step
from pteron.llm import model as model_module
from pteron.llm.engine import turns
from pteron.llm.sampling import RING, Drawn
from pteron.runtime import multi_step as repeating  # where `submit` is looked up

PROMPT = [5, 17, 99, 250, 3]
GREEDY, SEEDED = Sampling(), Sampling(temperature=0.9, top_k=50, top_p=0.9, repetition_penalty=1.2, seed=4)


@pytest.fixture(autouse=True)
def _at_full_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Submissions grow to the maximum number of steps, even on a slow machine."""
    monkeypatch.setattr(model_module, "SECONDS_MAX", 1e6)


@pytest.fixture
def model(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[LanguageModel]:
    """A model whose grids grow at contexts of 8, 16 and 32 already."""
    monkeypatch.setattr(attention, "BUCKET", 4)
    with pteron.load(MODELS / "tiny_llama_q4.pte", device=device) as program:
        yield LanguageModel(program)


@pytest.fixture(params=["software", "hardware"])
def routed(request: pytest.FixtureRequest, device: Device, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """The same with the kernels for CPUs and with those for GPUs."""
    monkeypatch.setattr(device, "target", replace(device.target, is_cpu=request.param == "software"))
    made: LanguageModel = request.getfixturevalue("model")
    return made


def sampler_of(model: LanguageModel, sampling: Sampling) -> Sampler:
    sampler = Sampler(model.device, model.vocabulary, sampling, model.logits_dtype)
    sampler.remember(PROMPT)
    return sampler


def drawn(
    model: LanguageModel,
    sampling: Sampling,
    count: int,
    resident: bool | None = None,
    counters: LoopCounters | None = None,
) -> list[Drawn]:
    model.reset()
    sampler = sampler_of(model, sampling)
    found = list(generate_step(model, sampler, PROMPT, count, resident=resident, counters=counters))
    sampler.close()
    return found


@pytest.mark.long(every=4)
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_to_the_end_of_the_context(routed: LanguageModel, sampling: Sampling) -> None:
    """Crosses every plan boundary on the way."""
    counters = LoopCounters()
    found = drawn(routed, sampling, 1000, counters=counters)
    assert len(found) == 64 - len(PROMPT) + 1
    assert found == drawn(routed, sampling, 1000, resident=False)
    assert counters.tokens == len(found)
    assert counters.submissions < len(found) / 3
    assert counters.stalls <= 1


@pytest.mark.long(every=5)
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(repetition_penalty=1.4),
        Sampling(temperature=1.0, seed=7),
        Sampling(temperature=0.7, top_k=11, seed=1),
        Sampling(temperature=1.3, top_p=0.8, seed=2),
        Sampling(temperature=1.0, min_p=0.2, seed=3),
        Sampling(presence_penalty=0.8, frequency_penalty=0.6),
        Sampling(top_logprobs=20),
        Sampling(1.1, 30, 0.9, 0.01, 1.2, 5, 0.5, 0.3, {7: 3.0, 9: -100}, 7),
    ],
    ids=str,
)
def test_every_setting(model: LanguageModel, sampling: Sampling) -> None:
    found = drawn(model, sampling, 24)
    assert found == drawn(model, sampling, 24, resident=False)
    assert [len(step.top) for step in found] == [sampling.top_logprobs] * 24


def test_greedy_takes_the_likeliest_and_knows_its_probability(model: LanguageModel) -> None:
    steps = drawn(model, GREEDY, 10)
    model.reset()
    logits = model.prefill(PROMPT).astype(np.float64)
    for step in steps:
        shares = logits - logits.max()
        expected = shares - np.log(np.exp(shares).sum())
        assert step.token == int(logits.argmax())
        assert step.logprob == pytest.approx(expected[step.token], abs=1e-5)
        logits = model.decode_one_token(step.token).astype(np.float64)


@pytest.mark.long(every=9)
@pytest.mark.parametrize("steps", [2, 3, 5, 16])
def test_submissions_of_any_length(
    routed: LanguageModel, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = drawn(routed, SEEDED, 40, resident=False)
    monkeypatch.setattr(model_module, "STEPS_MAX", steps)
    for in_flight in (1, 2, 3):
        monkeypatch.setattr(turns, "SUBMISSIONS", in_flight)
        assert drawn(routed, SEEDED, 40) == expected


def test_after_a_submission_that_fails(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps may have run: the next call at the same position writes its parameters again."""
    expected, faults = drawn(model, SEEDED, 12), Faults(monkeypatch)
    for after in (False, True):
        faults.arm("submit", 1, after=after)  # the first steps; before it, the prompt
        with pytest.raises(DeviceError):
            drawn(model, SEEDED, 12)
        assert faults.disarm()
        assert drawn(model, SEEDED, 12) == expected


@pytest.mark.long(every=5)
@pytest.mark.parametrize("name", sorted(path.stem for path in MODELS.glob("*.pte")))
def test_every_form_of_program(name: str, device: Device) -> None:
    """Among them one whose kernels read the position as a tensor, and one of logits for every token."""
    program = pteron.load(MODELS / f"{name}.pte", device=device)
    model = LanguageModel(program)
    assert drawn(model, SEEDED, 20) == drawn(model, SEEDED, 20, resident=False)
    program.close()


def test_closed_after_any_number_of_tokens(model: LanguageModel) -> None:
    expected = [step.token for step in drawn(model, GREEDY, 26, resident=False)]
    for count in (1, 2, 3, 4, 6, 9, 14, 23):
        model.reset()
        sampler = sampler_of(model, GREEDY)
        loop = generate_step(model, sampler, PROMPT, 40)
        found = [step.token for step in islice(loop, count)]
        loop.close()
        assert model.position == len(PROMPT) + count - 1
        assert model.tokens == PROMPT + found[:-1]
        found += [step.token for step in generate_step(model, sampler, found[-1:], 2)]
        sampler.close()
        assert found == expected[: count + 2]


def test_streams_in_turns(model: LanguageModel) -> None:
    """Two interleaved loops share parameter buffers and memory, so each sees what the other left there."""
    other = model.sequence()
    expected = [[step.token for step in drawn(model, sampling, 30)] for sampling in (GREEDY, SEEDED)]
    model.reset()
    samplers = [sampler_of(model, sampling) for sampling in (GREEDY, SEEDED)]
    loops = [
        generate_step(each, sampler, PROMPT, 30)
        for each, sampler in zip((model, other), samplers, strict=True)
    ]
    pairs = list(zip_longest(*loops))
    assert [[pair[index].token for pair in pairs] for index in (0, 1)] == expected
    for sampler in samplers:
        sampler.close()
    other.close()


def test_a_loop_beside_other_calls(model: LanguageModel) -> None:
    """Calls of another program on the same device, from another thread."""
    alone = drawn(model, GREEDY, 30)
    golden = np.load(MODELS.parent / "programs" / "mlp.npz")
    method = pteron.load(MODELS.parent / "programs" / "mlp.pte")["forward"]
    ended = threading.Event()
    wrong: list[float] = []

    def call_again_and_again() -> None:
        while not ended.is_set():
            (found,) = method(golden["case0_input0"])
            wrong.append(float(np.abs(found - golden["case0_output0"]).max()))

    other = threading.Thread(target=call_again_and_again)
    other.start()
    try:
        for _ in range(3):
            assert drawn(model, GREEDY, 30) == alone
    finally:
        ended.set()
        other.join()
    assert len(wrong) > 3
    assert max(wrong) < 1e-5


def test_prompts_that_are_refused(model: LanguageModel) -> None:
    sampler = sampler_of(model, GREEDY)
    for ids, message in (([], "at least one token"), ([3] * 65, "the context, which holds 64")):
        with pytest.raises(pteron.InputError, match=message):
            next(iter(generate_step(model, sampler, ids, 5)))
    sampler.close()


def test_the_host_writes_and_plans_nothing(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every submission is the same list of dispatches, repeated per step, between two copies."""
    monkeypatch.setattr(attention, "BUCKET", 64)  # a single plan
    drawn(model, SEEDED, 50)
    counters = model.method.counters
    writes: list[int] = []
    submitted: list[list[object]] = []
    write = Device.write

    def noting_write(device: Device, *arguments: object) -> None:
        writes.append(len(submitted))
        write(device, *arguments)  # type: ignore[arg-type]

    def noting_submit(device: Device, commands: list[object], *rest: object) -> int:
        submitted.append(commands)
        return submit(device, commands, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Device, "write", noting_write)
    monkeypatch.setattr(repeating, "submit", noting_submit)
    drawn(model, SEEDED, 50)
    assert max(writes) < 2  # only the prompt and the start of the loop
    assert model.method.counters.plans == counters.plans
    assert model.method.counters.bytes_read == counters.bytes_read
    for commands in submitted[1:]:
        first, *steps, last = commands
        assert isinstance(first, Copy)
        assert isinstance(last, Copy)
        assert all(isinstance(step, Replay) for step in steps)
        assert steps == steps[:2] * (len(steps) // 2)  # the model, the draw
    assert max(len(commands) for commands in submitted) == 2 * model_module.STEPS_MAX + 2


def test_without_the_host_only_where_parameters_allow_it(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If parameters cannot advance on the GPU, the host submits every step, with the same tokens."""
    expected = drawn(model, SEEDED, 20)
    monkeypatch.setattr(Recording, "advance", lambda *_: None)
    counters = LoopCounters()
    assert drawn(model, SEEDED, 20, counters=counters) == expected
    assert counters.submissions == 20


def test_an_input_that_no_kernel_reads_is_not_uploaded(model: LanguageModel) -> None:
    """The position is not uploaded: the host reads live integers from it, and no kernel reads it."""
    before = model.method.counters.bytes_uploaded
    model.method(np.array([[5]], np.int64), np.array([0], np.int64))
    assert model.method.counters.bytes_uploaded - before == 4  # the token


class TestPace:
    def test_no_token_is_overwritten_before_it_is_read(self) -> None:
        assert model_module.STEPS_MAX <= RING

    @pytest.mark.parametrize(
        ("seconds", "expected"),
        [(0.05, [1, 1, 1, 1, 1, 1]), (0.005, [2, 3, 3, 3, 3, 3]), (0.0005, [2, 3, 4, 6, 9, 12])],
    )
    def test_steps_per_submission(
        self, seconds: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As many steps as take no longer than a frame, if a step takes the given seconds."""
        monkeypatch.setattr(model_module, "SECONDS_MAX", 0.016)
        found, own = [], model_module.Pace()
        for _ in expected:
            own.update(own.steps, own.steps * seconds)
            found.append(own.steps)
        assert found == expected
