"""Whether a language model gives the same tokens with and without rewrites, with and without the C library.

    python benchmarks/same_tokens.py PROGRAM.pte [--tokens 500] [--prompts 2] [--prompt-length 16]

Generates tokens after random prompts, greedily and with a seed, in several configurations, and compares them
with those of the first. Then each configuration runs the first one's greedy tokens one by one, and the logits
are compared: the largest difference, and the smallest distance between the two largest logits of a step. If
that distance is smaller than the difference, rounding broke a tie. Exits with 1 if tokens differ otherwise.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import pteron
from pteron.gpu.encode import NATIVE_VARIABLE, encoder
from pteron.gpu.wgpu_native import LIBRARY
from pteron.llm.engine.generate import generate_step
from pteron.llm.model import LanguageModel, Logits
from pteron.llm.sampling import Sampler, Sampling
from pteron.passes.rewrite import REWRITES_VARIABLE

WAYS = {
    "all rewrites": {REWRITES_VARIABLE: ""},
    "no rewrites": {REWRITES_VARIABLE: "none"},
    "all rewrites, encoded from Python": {REWRITES_VARIABLE: "", NATIVE_VARIABLE: "0"},
    "no rewrites, encoded from Python": {REWRITES_VARIABLE: "none", NATIVE_VARIABLE: "0"},
}
SAMPLINGS = {"greedy": Sampling(), "seeded": Sampling(temperature=0.8, top_k=40, seed=7)}


@dataclass(frozen=True)
class Said:
    """The result of one configuration: tokens by (sampling, prompt), and the logits of given tokens."""

    tokens: dict[tuple[str, int], list[int]]
    best: list[Logits]  # by prompt: the two largest logits of each step
    logits: list[Logits]  # by prompt, a row for each step, of every STRIDE-th token


STRIDE = 61  # of the logits that are kept: all of 500 steps of a large vocabulary are too many


@contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    """Set environment variables temporarily."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    encoder.cache_clear()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        encoder.cache_clear()


def say(path: str, prompts: Sequence[list[int]], count: int, given: list[list[int]] | None) -> Said:
    """Draw tokens, then run the greedy ones, or those given, one by one."""
    with pteron.load(path) as program:
        model = LanguageModel(program)
        tokens: dict[tuple[str, int], list[int]] = {}
        for name, sampling in SAMPLINGS.items():
            for index, prompt in enumerate(prompts):
                model.reset()
                sampler = Sampler(model.device, model.vocabulary, sampling)
                tokens[name, index] = [drawn.token for drawn in generate_step(model, sampler, prompt, count)]
        best, logits = [], []
        for index, prompt in enumerate(prompts):
            model.reset()
            rows = [model.prefill(prompt)]
            followed = given[index] if given else tokens["greedy", index]
            rows += [model.decode_one_token(token) for token in followed[:-1]]
            best.append(np.array([np.sort(np.partition(row, -2)[-2:]) for row in rows]))
            logits.append(np.array([row[::STRIDE] for row in rows]))
        return Said(tokens, best, logits)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first place at which two lists differ."""
    places = (place for place, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1])
    return next(places, None if len(a) == len(b) else min(len(a), len(b)))


def compare(said: Said, first: Said) -> bool:
    """Print how a result differs from the first; return whether it is the same except for ties."""
    is_same = True
    differences = [float(np.abs(a - b).max()) for a, b in zip(said.logits, first.logits, strict=True)]
    margins = [float((rows[:, 1] - rows[:, 0]).min()) for rows in first.best]
    print(f"  logits differ by at most {max(differences):.2e}; the two largest by {min(margins):.2e} or more")
    for (sampling, index), tokens in said.tokens.items():
        place = first_difference(tokens, first.tokens[sampling, index])
        shown = "the same" if place is None else f"differ from token {place} on"
        if place is not None and sampling == "greedy":
            margin = float(np.diff(first.best[index][place])[0])
            shown += f", where the two largest logits are {margin:.2e} apart"
            is_same = is_same and margin <= 2 * differences[index]
        print(f"  {sampling}, prompt {index}: {len(tokens)} tokens, {shown}")
    return is_same


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--tokens", type=int, default=500, help="after each prompt, if the context has room")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--prompt-length", type=int, default=16)
    parser.add_argument("--ways", type=int, nargs="*", help=f"numbers of {', '.join(WAYS)}; 0 comes first")
    arguments = parser.parse_args()
    with pteron.load(arguments.program) as program:
        vocabulary = LanguageModel(program).vocabulary
    drawn = np.random.default_rng(0).integers(3, vocabulary, (arguments.prompts, arguments.prompt_length))
    prompts = [list(map(int, prompt)) for prompt in drawn]
    names = [list(WAYS)[number] for number in arguments.ways or range(len(WAYS))]
    first: Said | None = None
    status = 0
    for name in names:
        started = time.perf_counter()
        given = [first.tokens["greedy", index] for index in range(len(prompts))] if first else None
        with environment(WAYS[name]):
            said = say(arguments.program, prompts, arguments.tokens, given)
            print(
                f"{name} ({encoder(LIBRARY).description}): {time.perf_counter() - started:.1f} s", flush=True
            )
        status |= first is not None and not compare(said, first)
        first = first or said
    return status


if __name__ == "__main__":
    sys.exit(main())
