"""The sampler's operator alone: its noise, its filters and its draws, compared with float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from broken_kernel import broken
from threefry import threefry

from pteron.dtypes import DType, Storage
from pteron.gpu import Device, WordIncrements, submit
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, ValueList
from pteron.host.tensors import HostResult, View
from pteron.llm.sampling import Sampler, Sampling
from pteron.llm.sampling.form import RING, Form, numbers
from pteron.llm.sampling.graphs import STEPS, sampler_graph
from pteron.llm.sampling.logits_rows import NO_NUMBERS, LogitsRows
from pteron.llm.sampling.operator import pick, scan, search_limit
from pteron.llm.sampling_options import bits
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, op
from pteron.ops.operand import State
from pteron.plan import TensorPort
from pteron.plan.advance import GROWTHS
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session
from pteron.wgsl import Kernel, compose

Array = npt.NDArray[Any]
REACH = 50  # temperatures below the likeliest from which no token is drawn
KERNELS = ("sample_scan", "sample_tally", "sample_narrow", "sample_pick", "sample_merge")


def session_of(name: str, arguments: list[Any], outputs: list[Tensor], target: Target | None) -> Delegate:
    """A graph of one node, whose inputs are the tensors and live integers among its arguments."""
    given = [value for value in arguments if isinstance(value, (Tensor, SymInt))]
    inputs = tuple(value for value in given if not (isinstance(value, Tensor) and value.constant))
    results = ValueList(99, tuple(outputs)) if len(outputs) > 1 else outputs[0]
    graph = Graph("one", (Node(0, name, (*arguments, results)),), inputs, tuple(outputs), is_internal=True)
    return Delegate(Session.of(graph, Device.open(), target=target))


def integers(id: int, *shape: int) -> Tensor:
    """A state of zeros."""
    zeros = memoryview(np.zeros(shape, np.int32).tobytes())
    return Tensor(id, DType.I32, shape, Constant(f"zeros {id}", DType.I32, shape, zeros))


def run(session: Delegate, *values: Any) -> list[Array]:
    ports = session.executable.outputs
    wanted = [Wanted(port.dtype, on_gpu=False) for port in ports if isinstance(port, TensorPort)]
    return [result.numpy() for result in session.run(values, wanted) if isinstance(result, HostResult)]


def draws(
    logits: Array,
    steps: range,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 7,
    target: Target | None = None,
) -> tuple[Array, Array]:
    """The tokens of some steps, each drawn from the same logits, and their log-probabilities."""
    sampling = Sampling(temperature, top_k, top_p, min_p, seed=seed)
    graph = sampler_graph(logits.size, Form.of(sampling, logits.size), DType.F32)
    session = Delegate(Session.of(graph, Device.open(), target=target))
    session.device.write(session.states[State(STEPS)], np.array([steps.start], np.int32))
    pairs = []
    for step in steps:
        token_alone, ring = run(session, logits.reshape(1, -1), *numbers(sampling))
        pairs.append(ring[step % RING])
        assert pairs[-1][0] == token_alone.item()
    session.close()
    tokens, logprobs = np.array(pairs, np.int32).T
    return tokens, np.ascontiguousarray(logprobs).view(np.float32)


@op(
    "test.scores",
    "logits steps seed:int -> picks",
    shape=lambda x, *_: (-(-x.numel // 2048), 4),
)
def scores(
    logits: Operand, steps: Operand, seed: AnyInt, picks: Operand, *, target: Target
) -> Iterator[Dispatch]:
    """The best score of each block and its token, as sample_pick writes them."""
    row = LogitsRows.of(logits, target)
    yield scan(row)
    numbers = {**NO_NUMBERS, "seed": seed, "temperature": bits(1.0), "min_p": bits(-50.0)}
    yield pick(row, numbers, steps, None, picks)


NOISE, WORDS = "gumbel(seed, step, token);", "threefry(vec2(seed, step), vec2(token, 0u));"


def picks_of(vocabulary: int, words: list[tuple[int, int]], of: str, other: str) -> tuple[Array, Array]:
    """Scores and tokens of equal logits, a row for each (seed, step), if the kernel takes another noise."""
    logits = np.zeros(vocabulary, np.float32)
    picks = Tensor(3, DType.I32, (-(-vocabulary // 2048), 4))
    arguments = [Tensor(0, DType.F32, logits.shape), Tensor(1, DType.I32, (1,)), SymInt(2)]
    signed = np.array(words, np.uint32).view(np.int32)
    with broken("sample_pick", of, f"{other};"):
        session = session_of("test.scores", arguments, [picks], None)
        results = np.array([run(session, logits, step.reshape(1), int(seed))[0] for seed, step in signed])
    session.close()
    return np.ascontiguousarray(results[..., 0]).view(np.float32), results[..., 1]


class TestNoise:
    def test_the_twin_gives_the_published_answers(self) -> None:
        ones = 0xFFFFFFFF
        answers = {
            (0, 0, 0, 0): (0x6B200159, 0x99BA4EFE),
            (ones, ones, ones, ones): (0x1CB996FC, 0xBB002BE7),
            (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3): (0xC4923A9C, 0x483DF7A0),
        }
        for words, answer in answers.items():
            assert tuple(int(word) for word in threefry(*words)) == answer

    @pytest.mark.parametrize("half", [0, 1])
    def test_the_kernel_draws_the_twins_words(self, half: int) -> None:
        keys = [(0, 0), (7, 330), (1 << 31, 5), (0xFFFFFFFF, 0x7FFFFFFF)]
        expression = f"f32(random_words(seed, step, token).{'xy'[half]} >> 8u)"
        found, tokens = picks_of(4096, keys, NOISE, expression)
        for row, (seed, step) in enumerate(keys):
            words = (threefry(seed, step, np.arange(4096))[half] >> np.uint32(8)).reshape(2, 2048)
            np.testing.assert_array_equal(found[row], words.max(axis=1).astype(np.float32))
            np.testing.assert_array_equal(tokens[row], words.argmax(axis=1) + np.array([0, 2048]))

    def test_noise_is_exact_to_its_ends(self) -> None:
        corners = [0, 1, 2, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 0xFFFFFF00, 0xFFFFFFFE, 0xFFFFFFFF]
        words = [(a, b) for a in corners for b in (0, 1 << 31, 0xFFFFFFFF)]
        words += [tuple(pair) for pair in np.random.default_rng(0).integers(0, 1 << 32, (40, 2))]
        found, _ = picks_of(1, words, WORDS, "vec2(seed, step)")
        assert np.isfinite(found).all()
        np.testing.assert_allclose(
            found[:, 0], [gumbel(int(a), int(b)) for a, b in words], atol=2e-6, rtol=4e-7
        )
        assert found.min() == pytest.approx(-np.log(65 * np.log(2)), abs=1e-5)
        assert found.max() == pytest.approx(65 * np.log(2), abs=1e-4)

    def test_the_tail_of_many_draws(self) -> None:
        """The maxima of 8192 draws each, 2^26 draws in all: within REACH, and with the right distribution."""
        draws_of_a_token = [
            f"exponential(random_words(seed, 4u * step + {part}u, token))" for part in range(4)
        ]
        first, second, third, fourth = draws_of_a_token
        least = f"min(min({first}, {second}), min({third}, {fourth}))"
        found, _ = picks_of(1 << 22, [(3, step) for step in range(4)], NOISE, f"-log({least})")
        assert found.max() < 34  # 1e-7 of all such runs exceed it; a token as unlikely would have been drawn
        ordered = np.sort(found, axis=None).astype(np.float64)
        distances = np.exp(-8192 * np.exp(-ordered)) - (np.arange(ordered.size) + 0.5) / ordered.size
        assert np.abs(distances).max() * np.sqrt(ordered.size) < 1.95  # Kolmogorov and Smirnov, at 0.1 %


def gumbel(high: int, low: int) -> float:
    """The noise of 64 random bits."""
    bits = high << 32 | low
    if high >> 31:
        return float(-np.log(-np.log1p(-((1 << 64) - 1 - bits + 0.5) / 2.0**64)))
    return float(-np.log(-np.log((bits + 0.5) / 2.0**64)))


@op("test.last_place", "logits temperature:float top_k:int top_p:float -> search", shape=lambda *_: (2,))
def last_place(
    logits: Operand, temperature: float, top_k: AnyInt, top_p: float, search: Operand, *, target: Target
) -> Iterator[Dispatch]:
    """The last place that top-k and then top-p keep."""
    row = LogitsRows.of(logits, target)
    yield scan(row)
    between = Scratch(2, Storage.U32) if top_p < 1 else None
    divisor = bits(min(max(temperature, 2.0**-100), 2.0**100))
    numbers = {**NO_NUMBERS, "temperature": divisor, "top_k": int(top_k), "top_p": bits(top_p)}
    if int(top_k):
        yield from search_limit(row, numbers, None, between or search, is_top_k=True)
    if top_p < 1:
        limit = between if int(top_k) else None
        yield from search_limit(row, numbers, limit, search, is_top_k=False)


def kept(logits: Array, temperature: float, top_k: int, top_p: float, target: Target) -> Array:
    """Whether each token is kept."""
    arguments = [Tensor(0, DType.F32, logits.shape), temperature, top_k, top_p]
    session = session_of("test.last_place", arguments, [Tensor(1, DType.I32, (2,))], target)
    last = run(session, logits)[0].view(np.uint32)[0]
    session.close()
    bits = np.where(logits == 0, np.float32(0), logits).view(np.uint32)
    return np.asarray(np.where(bits >> 31 == 0, ~bits & np.uint32(0x7FFFFFFF), bits) <= last)


def kept_in_float64(logits: Array, temperature: float, top_k: int, top_p: float) -> Array:
    values = logits.astype(np.float64)
    order = np.sort(values)[::-1]
    least = order[min(top_k, order.size) - 1] if top_k else -np.inf
    if top_p < 1:
        order = order[order >= least]
        weights = np.exp((order - order[0]) / temperature)
        reached = np.cumsum(weights) / weights.sum() >= top_p
        least = order[reached.argmax() if reached.any() else -1]
    return np.asarray(values >= least)


def spread(size: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 4, size).astype(np.float32)


def tied(size: int) -> Array:
    return np.round(spread(size)).astype(np.float32)


def masked(size: int) -> Array:
    return np.where(np.arange(size) % 3 == 1, -np.inf, spread(size)).astype(np.float32)


def flat(size: int) -> Array:
    return np.full(size, 0.25, np.float32)


def near_zero(size: int) -> Array:
    values = np.where(np.arange(size) % 2, spread(size) * 1e-30, spread(size)).astype(np.float32)
    values[::5] = [0.0, -0.0] * (values[::5].size // 2) + [0.0] * (values[::5].size % 2)
    return values


class TestFilters:
    @pytest.mark.long(every=2)
    @pytest.mark.parametrize(
        ("top_k", "top_p"), [(1, 1), (7, 1), (40, 1), (0, 1e-30), (0, 0.3), (0, 0.95), (40, 0.9)]
    )
    @pytest.mark.parametrize("make", [spread, tied, masked, flat, near_zero])
    def test_what_is_kept(self, make: Any, top_k: int, top_p: float, target: Target) -> None:
        for size in (1, 67, 5003):
            self.check(make(size), 1.0, top_k, top_p, target)

    @pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-6, 0.03, 100, 1e30, 1e38])
    def test_temperatures(self, temperature: float, target: Target) -> None:
        for logits in (spread(300), tied(300), masked(300), flat(300), spread(300) * np.float32(1e37)):
            self.check(logits, temperature, 20, 0.8, target)

    def test_large_vocabularies(self, target: Target) -> None:
        """Vocabularies of Llama 3 and Gemma, within the loop iterations that an adapter allows."""
        for size, top_k, top_p in (
            (128256, 1000, 0.97),
            (262144, 50, 1),
            (262144, 0, 0.999),
            (262144, 1, 1e-6),
        ):
            self.check(spread(size), 0.9, top_k, top_p, target)

    def check(self, logits: Array, temperature: float, top_k: int, top_p: float, target: Target) -> None:
        """Check that the kept tokens are those of float64, except for shares that depend on rounding."""
        found = kept(logits, temperature, top_k, top_p, target)
        in_float64 = np.clip(temperature, 2.0**-100, 2.0**100)
        drawable = logits >= logits.max() - REACH * 0.99 * in_float64
        fewest = kept_in_float64(logits, in_float64, top_k, top_p * (1 - 2e-6))
        most = kept_in_float64(logits, in_float64, top_k, min(top_p * (1 + 2e-6), 1) if top_p < 1 else 1)
        assert found[logits.argmax()]
        assert not (fewest & ~found & drawable).any()
        assert not (found & ~most & drawable).any()

    def test_every_kernel_states_its_loops(self) -> None:
        names = {"block": 2048, "block_count": 128, "groups": (128, 1, 1), "vocabulary": 262144, "base": 0}
        for name in KERNELS:
            module = compose(
                Kernel("pteron.llm.sampling", name, **({} if "narrow" in name else {"LANES": 32}))
            )
            assert module.statements.loops is not None
            assert module.statements.loops.value({**module.constants, **names}) < 1000


class TestDraws:
    @pytest.mark.long(every=4)
    @pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
    def test_draws_follow_the_softmax(self, temperature: float) -> None:
        logits = np.array([1.5, -2, 0, 0.3, -0.7, 0.31, -np.inf, 1], np.float32)
        tokens, logprobs = draws(logits, range(3000), temperature=temperature)
        weights = np.exp(logits.astype(np.float64) / temperature)
        expected = 3000 * weights / weights.sum()
        counts = np.bincount(tokens, minlength=8)
        there = expected > 0
        assert counts[~there].sum() == 0
        assert (
            (counts - expected)[there] ** 2 / expected[there]
        ).sum() < 24.3  # 6 degrees of freedom, at 0.05 %
        shares = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
        np.testing.assert_allclose(logprobs, shares[tokens], atol=1e-5)

    def test_no_draw_of_an_unlikely_token(self, target: Target) -> None:
        logits = np.full(32000, -100, np.float32)
        logits[0] = 100
        assert draws(logits, range(330, 331), seed=7, target=target)[0] == [0]
        logits[1:] = 55  # within reach of noise, as likely as 1e-15 all together
        assert (draws(logits, range(20), seed=7, target=target)[0] == 0).all()

    @pytest.mark.parametrize(
        "settings", [{"top_k": 3}, {"top_p": 0.85}, {"min_p": 0.2}, {"top_k": 9, "min_p": 1}]
    )
    def test_filters_bound_what_is_drawn(self, settings: dict[str, Any], target: Target) -> None:
        shares = np.array([0.02, 0.4, 0.05, 0.3, 0.03, 0.2])
        keeps = {0.2: {1, 3, 5}, 1: {1}}.get(settings.get("min_p", 0.2), set())
        tokens, _ = draws(np.log(shares).astype(np.float32), range(120), target=target, **settings)
        assert set(tokens.tolist()) == keeps

    @pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-30, 1e-6])
    def test_next_to_no_temperature_takes_the_likeliest(self, temperature: float, target: Target) -> None:
        for logits in (spread(3001), spread(3001) * np.float32(1e37), masked(3001)):
            tokens, logprobs = draws(logits, range(3), temperature=temperature, target=target)
            assert (tokens == logits.argmax()).all()
            assert np.isfinite(logprobs).all()

    def test_a_great_temperature_draws_evenly(self) -> None:
        logits = np.array([3e38, -3e38, 0, 5], np.float32)
        assert set(draws(logits, range(60), temperature=1.0)[0]) == {0}
        tokens, _ = draws(logits / np.float32(1e36), range(400), temperature=1e38)
        assert np.bincount(tokens, minlength=4).min() > 60

    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    @pytest.mark.parametrize("odd", [np.nan, -np.inf, np.inf])
    def test_logits_that_are_no_numbers(self, odd: float, temperature: float, target: Target) -> None:
        logits = np.zeros(4100, np.float32)
        logits[5:] = odd
        tokens, logprobs = draws(logits, range(20), temperature=temperature, target=target)
        assert ((tokens >= 5) if odd == np.inf else (tokens < 5)).all()
        assert np.isnan(logprobs).all() == bool(np.isnan(odd))
        tokens, _ = draws(np.full(4100, odd, np.float32), range(3), temperature=temperature, target=target)
        assert ((tokens >= 0) & (tokens < 4100)).all()

    def test_seeds_and_steps_repeat_and_differ(self) -> None:
        tokens = [draws(flat(5000), range(10), seed=seed)[0].tolist() for seed in (1, 1, 2)]
        assert tokens[0] == tokens[1] != tokens[2]
        assert len(set(tokens[0])) > 7


def test_each_draw_is_written_where_it_is_wanted(device: Device) -> None:
    logits = np.zeros(31, np.float32)
    logits[7] = 1
    row, tokens = device.create_buffer(logits.nbytes, "logits"), device.create_buffer(4, "token")
    device.write(row, logits)
    sampler = Sampler(device, 31, Sampling())
    view = View(row, 0, (1, 31), DType.F32, Storage.F32)
    for step, token in enumerate((sampler.token.buffer, tokens)):
        with device.lock:
            submit(device, [sampler.replay(view, step, token)])
        assert np.frombuffer(device.read(token, 4), np.int32) == 7
    sampler.close()


class TestGrowth:
    """What a loop's parameters need from one draw to the next."""

    @pytest.mark.parametrize("count", [1, 3, GROWTHS])
    @pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, repetition_penalty=1.1)], ids=str)
    def test_words_grow_with_every_draw(self, count: int, sampling: Sampling, device: Device) -> None:
        start = np.arange(100, 140, dtype=np.int32)
        words = device.create_buffer(start.nbytes, "words")
        device.write(words, start)
        places = np.random.default_rng(4).permutation(40)[:count]
        growths = [(int(place), index - 5 or 7) for index, place in enumerate(places)]
        logits = device.create_buffer(400, "logits")
        sampler = Sampler(device, 100, sampling)
        view = View(logits, 0, (1, 100), DType.F32, Storage.F32)
        with device.lock:
            growing = WordIncrements.of(device, words, growths)
            submit(device, [sampler.replay(view, 0, sampler.token.buffer, growing)] * 3)
        found = np.frombuffer(device.read(words, start.nbytes), np.int32)
        for place, growth in growths:
            start[place] += 3 * growth
        np.testing.assert_array_equal(found, start)
        sampler.close()
