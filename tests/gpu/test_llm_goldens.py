"""Tiny language models against eager PyTorch: every prompt length, in any order, from one loaded method."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from golden import Array, read_cases

import pteron
from pteron import ShapeError

NAMES = ["tiny_llama_fp32", "tiny_qwen3_fp32"]
TOLERANCE = 1e-4
CONTEXT = 64
LENGTHS = range(1, 32)
DECODED = 3  # steps after each prompt


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def method(models: Path, name: str) -> Iterator[pteron.Method]:
    with pteron.load(models / f"{name}.pte") as program:
        yield program["forward"]


@pytest.fixture(scope="module")
def goldens(models: Path, name: str) -> dict[str, Array]:
    with np.load(models / f"{name}.npz") as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def lengths(models: Path, name: str) -> dict[str, Array]:
    """A stream of tokens; for each prompt length, the logits of the prompt and of the tokens that follow."""
    with np.load(models / f"{name}_lengths.npz") as stored:
        return dict(stored)


def logits(method: pteron.Method, tokens: Array, position: int) -> Array:
    (found,) = method(tokens.reshape(1, -1), np.array([position]))
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    return found.reshape(-1)


def assert_close(found: Array, expected: Array, what: str) -> None:
    np.testing.assert_allclose(found, expected.reshape(-1), rtol=0, atol=TOLERANCE, err_msg=what)


def run_prompt(method: pteron.Method, lengths: dict[str, Array], length: int) -> None:
    """A prompt from position 0, then the tokens that follow it, one a step."""
    stream = lengths["stream"]
    found = logits(method, stream[:length], 0)
    assert_close(found, lengths["logits_prefill"][length - 1], f"prompt of {length}")
    for step in range(DECODED):
        at = length + step
        found = logits(method, stream[at : at + 1], at)
        assert_close(found, lengths["logits_decode"][length - 1, step], f"prompt of {length}, position {at}")


@pytest.mark.long(every=2)
def test_prefill_and_every_decode_step(method: pteron.Method, goldens: dict[str, Array]) -> None:
    prompt = goldens["prompt"]
    assert_close(logits(method, prompt, 0), goldens["logits_prefill"], "prompt")
    for step, token in enumerate(goldens["decode_tokens"]):
        found = logits(method, np.array([token]), len(prompt) + step)
        assert_close(found, goldens["logits_decode"][step], f"decode step {step}")


@pytest.mark.long(every=5)
@pytest.mark.parametrize(
    ("quantized", "tolerance"),
    [
        ("tiny_llama_q4", TOLERANCE),
        ("tiny_llama_q4_emb4", TOLERANCE),
        ("tiny_llama_8da4w", TOLERANCE),
        ("tiny_llama_q4_static", TOLERANCE),
        ("tiny_llama_q4_fp16", 2e-2),  # the goldens are in f32
    ],
)
def test_quantized_models(models: Path, quantized: str, tolerance: float) -> None:
    with np.load(models / f"{quantized}.npz") as stored:
        goldens = dict(stored)
    prompt, decoded = goldens["prompt"], goldens["decode_tokens"]
    with pteron.load(models / f"{quantized}.pte") as program:
        method = program["forward"]
        at_once = 1 if quantized.endswith("static") else len(prompt)
        for position in range(0, len(prompt), at_once):
            found = logits(method, prompt[position : position + at_once], position)
        expected = [goldens["logits_prefill"].reshape(-1), *goldens["logits_decode"]]
        results = [found]
        for step, token in enumerate(decoded):
            results.append(logits(method, np.array([token]), len(prompt) + step))
    for step, (result, golden) in enumerate(zip(results, expected, strict=True)):
        np.testing.assert_allclose(result, golden, rtol=0, atol=tolerance, err_msg=f"step {step}")


@pytest.mark.long(every=8)
@pytest.mark.parametrize("order", ["shuffled", "forwards", "backwards", "shuffled again"])
def test_every_prompt_length(method: pteron.Method, lengths: dict[str, Array], order: str) -> None:
    shuffled = [31, 7, 1, 16, 2, *Random(order).sample(LENGTHS, len(LENGTHS))]
    orders = {"forwards": list(LENGTHS), "backwards": list(reversed(LENGTHS))}
    for length in orders.get(order, shuffled):
        run_prompt(method, lengths, length)


def test_a_fresh_method_at_the_smallest_length(models: Path, name: str, lengths: dict[str, Array]) -> None:
    """The first call is right though its position is what the file has, and no larger call came before."""
    with pteron.load(models / f"{name}.pte") as program:
        run_prompt(program["forward"], lengths, 1)


def test_a_prompt_in_pieces(method: pteron.Method, lengths: dict[str, Array]) -> None:
    """The cache does not care how the tokens before came in."""
    stream = lengths["stream"]
    logits(method, stream[:7], 0)
    logits(method, stream[7:12], 7)
    logits(method, stream[12:13], 12)
    assert_close(logits(method, stream[13:31], 13), lengths["logits_prefill"][30], "the last piece")


def test_logits_kept_on_the_gpu(method: pteron.Method, lengths: dict[str, Array]) -> None:
    stream = lengths["stream"]
    (found,) = method(stream[:5].reshape(1, -1), np.array([0]), on_gpu=True)
    assert isinstance(found, pteron.GpuTensor)
    assert_close(found.numpy().reshape(-1), lengths["logits_prefill"][4], "prompt of 5")


def test_positions_beyond_the_context(method: pteron.Method, lengths: dict[str, Array]) -> None:
    stream = lengths["stream"]
    for count, position in ((1, CONTEXT), (2, CONTEXT - 1), (31, 40), (1, -1), (1, 1000)):
        run_prompt(method, lengths, 7)
        before = method.counters
        with pytest.raises(ShapeError, match=str(position)) as caught:
            logits(method, stream[:count], position)
        assert "node" in str(caught.value)
        after = method.counters
        assert after.dispatches == before.dispatches
        assert after.bytes_uploaded == before.bytes_uploaded
        # The caches still hold what the prompt and the three tokens after it left there.
        found = logits(method, stream[9:10], 9)
        assert_close(found, lengths["logits_decode"][6, 2], f"after the error at {position}")
    run_prompt(method, lengths, 11)


def test_the_last_position_of_the_context(method: pteron.Method, lengths: dict[str, Array]) -> None:
    stream = lengths["stream"]
    run_prompt(method, lengths, 31)
    for position in range(34, CONTEXT):
        found = logits(method, stream[position : position + 1], position)
        assert np.isfinite(found).all()


def test_a_decode_loop_plans_once(models: Path, name: str, lengths: dict[str, Array]) -> None:
    with pteron.load(models / f"{name}.pte") as program:
        method, stream = program["forward"], lengths["stream"]
        logits(method, stream[:7], 0)
        logits(method, stream[7:8], 7)
        before = method.counters
        for position in range(8, 38):
            logits(method, stream[position : position + 1], position)
        after = method.counters
    assert after.calls - before.calls == 30
    assert after.plans == before.plans
    assert after.parameter_writes - before.parameter_writes == 30  # the position, once a step
    assert after.bytes_uploaded - before.bytes_uploaded == 30 * 4  # a token each


def test_an_unchanged_position_writes_no_parameter(method: pteron.Method, lengths: dict[str, Array]) -> None:
    stream = lengths["stream"]
    logits(method, stream[:7], 0)
    logits(method, stream[:7], 0)
    before = method.counters
    for _ in range(5):
        logits(method, stream[:7], 0)
    assert method.counters.parameter_writes == before.parameter_writes
    assert method.counters.plans == before.plans


def test_a_static_graph_plans_once_and_writes_no_parameter(programs: Path) -> None:
    cases = read_cases(programs / "mlp.npz")
    with pteron.load(programs / "mlp.pte") as program:
        method = program["forward"]
        for call in range(20):
            method(*cases[call % len(cases)].inputs)
        assert method.counters.calls == 20
        assert method.counters.plans == 1
        assert method.counters.parameter_writes == 0
