"""Speculative decoding beside plain decoding: the time of a verification, and tokens per second.

    python benchmarks/speculative.py --program PROGRAM.pte [--tokens 256] [--context 128]
    python benchmarks/speculative.py --model MODEL [--draft MODEL] [--tokens 256]

With --program, which may have random weights: the time of a verification of 2, 4, 8 and 16 rows beside that
of plain steps; then whole generations whose proposals are right with a given probability, because they are
made from the output of plain decoding. With --model (a name, a folder, or a program beside its tokenizer),
prompts whose answers repeat them (a code edit, a summary) and one whose answer does not (a story), by prompt
lookup or with --draft; each to the end of the answer. "same" says whether all tokens are those of plain
decoding.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from pteron.gpu import Copy
from pteron.llm import LLM, Tokenizer
from pteron.llm.engine import speculation as speculation_module
from pteron.llm.engine.verifier import ROWS, Verifier
from pteron.llm.sampling import Sampling

ROUNDS = 3
RATES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
CODE = '''def total(prices, tax):
    """The sum of all prices with tax."""
    result = 0
    for price in prices:
        result += price
    retrun result * (1 + tax)


def average(prices):
    """The mean of all prices."""
    if not prices:
        return 0
    return sum(prices) / len(prices)
'''
ARTICLE = (
    "The lighthouse on the northern cape was built in 1871. Its lamp burned whale oil until 1902, when the "
    "keepers replaced it by an electric arc lamp. In 1954 a storm destroyed the eastern wall, and the tower "
    "stood empty for eleven years. The town bought the building in 1965 and opened a museum in it. Today "
    "about forty thousand visitors climb its 212 steps every year."
)
PROMPTS = {
    "code edit": f"This code has a typo: `retrun`. Write the whole code again with the typo corrected:\n\n"
    f"```python\n{CODE}```",
    "summary": f"Summarize this text in three sentences:\n\n{ARTICLE}",
    "story": "Write a story about a fox and a clock.",
}


class Ids(Tokenizer):
    """A tokenizer for programs without one: tokens have no text."""

    def __init__(self, vocabulary: int) -> None:
        self.vocab_size = vocabulary

    def token_bytes(self, token: int) -> bytes:
        return b""

    def token_id(self, text: str) -> int | None:
        return None

    def token_text(self, token: int) -> str:
        return str(token)

    def _encode(self, text: str, special: bool) -> list[int]:
        return []


class Synthetic(speculation_module.Proposer):
    """Proposes the tokens of plain decoding; each is right with probability `rate`."""

    right: Sequence[int] = ()
    rate = 1.0

    def __init__(self, prompt: Sequence[int]) -> None:
        self._random = np.random.default_rng(len(prompt))

    def propose(self, drawn: Sequence[int], most: int) -> list[int]:
        found = self.right[len(drawn) : len(drawn) + most]
        return [token if self._random.random() < self.rate else (token + 1) % 7 for token in found]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", help="a program, for times with synthetic proposals")
    parser.add_argument("--model", help="a model with its tokenizer, for text")
    parser.add_argument("--draft", help="a draft model of --model; without one, prompt lookup")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--context", type=int, default=128, help="prompt tokens of --program")
    arguments = parser.parse_args()
    if not arguments.program and not arguments.model:
        parser.error("--program or --model is needed")
    if arguments.program:
        measure_program(arguments.program, arguments.tokens, arguments.context)
    if arguments.model:
        measure_text(arguments.model, arguments.draft, arguments.tokens)


def measure_program(program: str, count: int, context: int) -> None:
    path = Path(program)
    with LLM(path, Ids(1 << 20), speculate="lookup") as llm:
        print(f"{path.name}: {llm.program.device.adapter}, prompt of {context} tokens, {count} new ones")
        prompt = np.random.default_rng(context).integers(0, llm.model.vocabulary, context).tolist()
        plain, tokens = decode(llm, prompt, count, stop_ids=(), speculate=False)
        print(f"plain: {1e3 / plain:.3f} ms a token, {plain:.1f} tokens/s\n")
        print("rows  ms/verification  in plain steps")
        for rows in ROWS:
            seconds = time_verification(llm, prompt, tokens[: rows - 1])
            print(f"{rows:4}  {1e3 * seconds:15.3f}  {seconds * plain:14.2f}")
        print("\nright  proposed  accepted  tokens/s  ratio  same")
        lookup, speculation_module.Lookup = speculation_module.Lookup, Synthetic  # type: ignore[misc]
        Synthetic.right = tokens
        for Synthetic.rate in RATES:
            rate, found = decode(llm, prompt, count, stop_ids=())
            print(f"{Synthetic.rate:5.0%}  {row_of(llm, rate, plain, found == tokens)}")
        speculation_module.Lookup = lookup  # type: ignore[misc]


def time_verification(llm: LLM, prompt: list[int], proposal: list[int]) -> float:
    """Seconds of a verification from its submission to its tokens on the host: the median."""
    model, device, found = llm.model, llm.model.device, []
    sampler, verifier = model.sampler(Sampling()), Verifier(model)
    user = model.claim()
    model.rewind_to(0, user)
    model.prefill_as(prompt[:-1], user)
    size = sampler.drawn_bytes
    for _ in range(23):
        start = perf_counter()
        with device.lock:
            readback = device.readback(size)
            copy = Copy(sampler.drawn, readback.staging, size)
            rows = [prompt[-1], *proposal]
            number = verifier.submit(
                model, rows, lambda outputs, c=copy: [*sampler.draw_rows(outputs[0], 0, 1 + len(proposal)), c]
            )
            readback.begin()
            readback.peek(0, size, number)
            readback.release()
        found.append(perf_counter() - start)
        model.rewind_to(len(prompt) - 1, user)
    sampler.close()
    verifier.close()
    return float(np.median(found[3:]))


def decode(llm: LLM, prompt: list[int], count: int, **options: Any) -> tuple[float, list[int]]:
    """Tokens per second after the first, the best of some rounds, and the tokens. The first round compiles,
    and measures what pays."""
    best, tokens = 0.0, list[int]()
    for _ in range(1 + ROUNDS):
        llm.reset()
        tokens = [piece.token for piece in llm.generate(prompt, max_new_tokens=count, **options)]
        best = max(best, llm.statistics.decode_rate)
    return best, tokens[:count]


def row_of(llm: LLM, rate: float, plain: float, is_same: bool) -> str:
    found = llm.statistics
    return (
        f"{found.proposed_tokens:8}  {found.accepted_tokens:8}  {rate:8.1f}  {rate / plain:5.2f}  "
        f"{'yes' if is_same else 'no'}"
    )


def measure_text(model: str, draft: str | None, count: int) -> None:
    with LLM(model, speculate=draft or "lookup") as llm:
        print(f"{model}, {draft or 'prompt lookup'}: {llm.program.device.adapter}")
        print("prompt     tokens  plain tokens/s  proposed  accepted  tokens/s  ratio  same")
        for name, text in PROMPTS.items():
            prompt = list(llm.encode_chat([{"role": "user", "content": text}]))
            plain, expected = decode(llm, prompt, count, speculate=False)
            rate, found = decode(llm, prompt, count)
            same = found == expected
            print(f"{name:9}  {len(expected):6}  {plain:14.1f}  {row_of(llm, rate, plain, same)}", flush=True)


if __name__ == "__main__":
    main()
