"""What the precision of products changes in a language model: perplexity, and the tokens that it gives.

    python benchmarks/precision.py MODEL [TEXT] [--prompts 200] [--tokens 48]

Measures a model as exact as f32 (three digits, f32-like products and caches), then with an f16 cache, then
with f16 products and two digits too. Each token of TEXT after the first 17 is predicted twice: by a prefill
of all tokens before it, which matrix cores compute, and by a decode step, which digits compute. Then prompts
of drawn lengths, parts of TEXT or drawn tokens, are continued greedily: how many give the same tokens, how
many tokens come before the first that differs, and how far apart the two largest logits are there.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pteron
from pteron.llm import LLM
from pteron.llm.load_options import LoadOptions
from pteron.llm.model import LanguageModel

WAYS: dict[str, dict[str, Any]] = {
    "as exact as f32": {"products": "f32", "digits": 3, "cache": "f32"},
    "f16 cache": {"products": "f32", "digits": 3, "cache": "f16"},
    "f16 products, two digits, f16 cache": {"products": "f16", "digits": 2, "cache": "f16"},
}
READ = 17  # tokens that are not predicted


class Found(NamedTuple):
    """What one precision gives."""

    by_prefill: list[float]  # losses
    by_decode: list[float]
    answers: list[list[int]]
    margins: list[list[float]]  # of each token of an answer: between the two largest logits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder, a program or a name")
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--length", type=int, default=400, help="tokens of the text, at most")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=48, help="of an answer")
    arguments = parser.parse_args()
    found = {name: measure(options, arguments) for name, options in WAYS.items()}
    for name, each in found.items():
        if each.by_prefill:
            print(
                f"{name}: perplexity {math.exp(np.mean(each.by_prefill)):.4f} by prefill, "
                f"{math.exp(np.mean(each.by_decode)):.4f} by decode, of {len(each.by_prefill)} tokens"
            )
    (_, exact), *others = found.items()
    for name, quick in others:
        agreed = [first_difference(*pair) for pair in zip(exact.answers, quick.answers, strict=True)]
        print(
            f"{name}: {agreed.count(None)} of {len(agreed)} prompts give the same {arguments.tokens} tokens"
        )
        parted = [(at, exact.margins[index][at]) for index, at in enumerate(agreed) if at is not None]
        if parted:
            places, margins = zip(*parted, strict=True)
            print(
                f"  the others part after {np.median(places):.0f} tokens in the median, where the two "
                f"largest logits are {np.median(margins):.4f} apart in the median, {max(margins):.4f} at most"
            )


def measure(options: dict[str, Any], arguments: argparse.Namespace) -> Found:
    by_prefill, by_decode = [], []
    if arguments.text is None:
        loading = LoadOptions(**options)
        program = pteron.load(
            arguments.model, digits=loading.digits, products=loading.products, adapt=loading.adapt
        )
        model = LanguageModel(program)
        source = np.random.default_rng(1).integers(3, model.vocabulary, 2000).tolist()
    else:
        llm = LLM(arguments.model, **options)
        model, program = llm.model, llm
        source = llm.encode(arguments.text.read_text("utf-8"))
        ids = source[: min(arguments.length, model.context or arguments.length)]
        by_prefill = [loss(prefilled(model, ids[:end]), ids[end]) for end in range(READ, len(ids))]
        logits = prefilled(model, ids[:READ])
        for token in ids[READ:]:
            by_decode.append(loss(logits, token))
            logits = model.decode_one_token(token)
    print(f"{arguments.model}, {options}: {model.device.adapter}", flush=True)
    draw = np.random.default_rng(0)
    answers, margins = [], []
    for _ in range(arguments.prompts):
        length = int(min(len(source), np.clip(draw.lognormal(np.log(40), 0.6), 4, 160)))
        start = int(draw.integers(0, len(source) - length + 1))
        answer, apart = greedy(model, source[start : start + length], arguments.tokens)
        answers.append(answer)
        margins.append(apart)
    program.close()
    return Found(by_prefill, by_decode, answers, margins)


def prefilled(model: LanguageModel, ids: Sequence[int]) -> np.ndarray:
    model.reset()
    return model.prefill(ids)


def greedy(model: LanguageModel, prompt: Sequence[int], count: int) -> tuple[list[int], list[float]]:
    logits, tokens, apart = prefilled(model, prompt), [], []
    for _ in range(min(count, (model.context or count) - len(prompt))):
        second, first = np.partition(logits, -2)[-2:]
        tokens.append(int(logits.argmax()))
        apart.append(float(first - second))
        logits = model.decode_one_token(tokens[-1])
    return tokens, apart


def loss(logits: np.ndarray, token: int) -> float:
    """The negative logarithm of a token's probability."""
    exact = logits.astype(np.float64)
    largest = exact.max()
    return float(np.log(np.exp(exact - largest).sum()) + largest - exact[token])


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    return next((at for at, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1]), None)


if __name__ == "__main__":
    main()
