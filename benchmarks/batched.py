"""Tokens per second of a language model that decodes many sequences in one batch, beside one sequence.

    python benchmarks/batched.py [PROGRAM.pte | FOLDER] [--rows 1 2 4 8 16 32] [--tokens 96] [--context 128]

The default program is PTERON_BENCH_PROGRAM, or stories15m. Greedy, prompts of drawn lengths (log-normal, as
those of chats are) around --context, two submissions in flight. A row prints: sequences, ms per step,
tokens/s, the ratio to one sequence alone, the 50th and 99th percentile of a step, launches per step, and the
floor of a step: weights read once at --bandwidth, or two f32 operations per weight and row at --tflops, the
longer of both. --profile prints a step by kernel.
"""

from __future__ import annotations

import argparse
import os
from collections import deque
from pathlib import Path
from time import perf_counter

import numpy as np
from breakdown import by_kernel
from figures import drawn_lengths, percentile

import pteron
from pteron.dtypes import DType, Storage
from pteron.host.tensors import View
from pteron.llm.engine.batched_model import BatchedModel, BatchRow, BatchSubmission
from pteron.llm.engine.generate import generate_step
from pteron.llm.model import LanguageModel
from pteron.llm.names.models import fetch
from pteron.llm.sampling import Sampler, Sampling

STEPS = 12  # of a submission


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", nargs="?", default=os.environ.get("PTERON_BENCH_PROGRAM"))
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--tokens", type=int, default=96, help="of every sequence")
    parser.add_argument("--context", type=int, default=128, help="tokens of prompts, the median")
    parser.add_argument("--bandwidth", type=float, default=4.8, help="TB/s of the floor (default: an H200's)")
    parser.add_argument(
        "--tflops", type=float, default=67.0, help="f32 arithmetic of the floor (default: an H200's)"
    )
    parser.add_argument("--profile", type=int, nargs="*", default=[], help="rows to break a step down for")
    arguments = parser.parse_args()
    path = Path(arguments.program or fetch("stories15m"))
    with pteron.load(path / "model.pte" if path.is_dir() else path) as program:
        model = LanguageModel(program)
        print(f"{path}: {program.device.adapter}, context {model.context}")
        if reason := BatchedModel.reason(model):
            raise SystemExit(reason)
        alone = time_alone(model, arguments.tokens, arguments.context)
        print(f"alone: {1e3 / alone:.3f} ms a token, {alone:.1f} tokens/s")
        most = max(arguments.rows + arguments.profile)
        batched = BatchedModel(model, most)
        sequences, firsts = begin(batched, most, arguments.context, arguments.tokens)
        print(f"first token: 50 % {percentile(firsts, 50):.2f} ms, 99 % {percentile(firsts, 99):.2f} ms")
        print(f"floor: {arguments.bandwidth} TB/s, {arguments.tflops} TFLOP/s")
        print("rows  ms/step  tokens/s  ratio  step p50/p99  launches  floor ms  of floor")
        for rows in arguments.rows:
            seconds, steps = time_together(batched, sequences[:rows], arguments.tokens)
            weights = batched.session.bytes_by_kind["weights"]
            floor = max(weights / arguments.bandwidth / 1e12, 4 * weights * rows / arguments.tflops / 1e12)
            launches = launches_of(batched, rows, arguments.context)
            rate = rows / seconds
            print(
                f"{rows:4}  {1e3 * seconds:7.3f}  {rate:8.1f}  {rate / alone:5.2f}  "
                f"{percentile(steps, 50):5.2f}/{percentile(steps, 99):6.2f}  {launches:8}  "
                f"{1e3 * floor:8.3f}  {seconds / floor:8.2f}"
            )
        for rows in arguments.profile:
            profile(batched, sequences[:rows], arguments.context)
        batched.close()


def time_alone(model: LanguageModel, count: int, context: int) -> float:
    """Tokens per second of one sequence, by `generate_step`."""
    best = 0.0
    for _ in range(3):
        model.reset()
        sampler = Sampler(model.device, model.vocabulary, Sampling(), model.logits_dtype)
        loop = generate_step(model, sampler, prompt(model, context), count)
        next(loop)
        start = perf_counter()
        drawn = sum(1 for _ in loop)
        best = max(best, drawn / (perf_counter() - start))
        sampler.close()
    return best


def begin(
    batched: BatchedModel, count: int, context: int, tokens: int
) -> tuple[list[tuple[LanguageModel, BatchRow]], list[float]]:
    """Sequences that have read prompts of drawn lengths, and the milliseconds to the first token of each."""
    begun, firsts = [], []
    for length in drawn_lengths(count, context, (batched.model.context or 2048) - tokens - STEPS):
        sequence = batched.model.sequence()
        ids = prompt(sequence, length)
        slot = batched.slot_of(sequence)
        assert slot is not None
        started = perf_counter()
        begun.append((sequence, BatchRow(slot, len(ids), int(sequence.prefill(ids).argmax()))))
        firsts.append(1e3 * (perf_counter() - started))
    return begun, firsts


def time_together(
    batched: BatchedModel, begun: list[tuple[LanguageModel, BatchRow]], count: int
) -> tuple[float, list[float]]:
    """Seconds of a step of all rows, the best of three, and the milliseconds of its steps."""
    rows = [row for _, row in begun]
    return min(_time_together(batched, rows, count) for _ in range(3))


def _time_together(batched: BatchedModel, rows: list[BatchRow], count: int) -> tuple[float, list[float]]:
    under_way: deque[BatchSubmission] = deque()
    batched.step(rows, 1).read()  # plans, kernels
    start, done, read = perf_counter(), 1, [perf_counter()]
    while done <= count:
        steps = min(STEPS, count + 1 - done)
        later = [BatchRow(row.slot, row.position + done) for row in rows]
        under_way.append(batched.step(later, steps))
        done += steps
        if len(under_way) == 2:
            under_way.popleft().read()
            read.append(perf_counter())
    while under_way:
        under_way.popleft().read()
        read.append(perf_counter())
    return (perf_counter() - start) / count, [1e3 * float(taken) / STEPS for taken in np.diff(read)]


def launches_of(batched: BatchedModel, rows: int, context: int) -> int:
    """Launches of a step's plan, without those that draw."""
    return len(batched.session.make_plan((np.zeros(rows, np.int32), context), plain=True).launches)


def prompt(model: LanguageModel, length: int) -> list[int]:
    return np.random.default_rng(length).integers(0, model.vocabulary, length).tolist()


def profile(batched: BatchedModel, begun: list[tuple[LanguageModel, BatchRow]], context: int) -> None:
    """GPU time of a step by kernel and grid, without what draws."""
    rows = [row for _, row in begun]
    batched.step([BatchRow(row.slot, row.position, row.token) for row in rows], 1).read()
    slots = View(batched._chosen, 0, (len(rows),), DType.I32, Storage.I32)
    plan, replay = batched.session.recorded((slots, context), batched.states)
    by_kernel(batched.device, plan, replay, f"profile of {len(rows)} rows at {context} tokens")


if __name__ == "__main__":
    main()
