"""Questions to programs and models, and the answers to them, noted before anything else was done."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pteron
from pteron.llm import LLM, Piece, Sampling

TESTS = Path(__file__).parents[1]
PROGRAMS = TESTS / "fixtures" / "programs"
MODEL = TESTS / "fixtures" / "models" / "tiny_llama_q4.pte"
STORIES = TESTS.parent / "src" / "pteron" / "models" / "stories15m"

# Names, and how many questions each is asked. `vision` has more live shapes than the cache of plans keeps,
# `mutable_buffer` and `attention_cache` keep states.
ASKED = {
    "vision": 100,
    "norms": 30,
    "layout": 13,
    "quantized_linear": 13,
    "mlp_dynamic": 17,
    "symint_output": 30,
    "mutable_buffer": 2,
    "attention_cache": 4,
    "two_delegates": 6,
}
LEAST = {"vision": 8}  # a smaller picture has nothing left after its pools
PROMPTS = ([1, *range(40, 80)], [1, 200, 90, 17], [1], [1, *range(60, 66)], [5, 6, 7, 8, 9, 10, 11])
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, top_k=20, seed=5),
    Sampling(temperature=1.0, top_p=0.9, seed=9),
)
STORY_PROMPTS = ("Once upon a time", "The dog")
TOKENS = 8


@dataclass(frozen=True)
class Question:
    """A call of a program, by the seed that its inputs are drawn from."""

    program: str
    seed: int

    def inputs(self, method: pteron.Method) -> list[Any]:
        random = np.random.default_rng(self.seed)
        least = LEAST.get(self.program, 1)
        drawn: dict[int, int] = {}  # dims with one maximum are one dim
        inputs: list[Any] = []
        for spec in method.inputs:
            if spec.dtype is None:
                inputs.append(2)
                continue
            shape = tuple(
                drawn.setdefault(size, int(random.integers(least, size + 1))) if free else size
                for size, free in zip(spec.shape_max, spec.dynamic, strict=True)
            )
            array = random.standard_normal(shape) if spec.dtype.is_float else np.zeros(shape)
            inputs.append(array.astype(spec.dtype.numpy))
        return inputs

    def ask(self, method: pteron.Method) -> list[bytes]:
        """The answer, from the state that the program starts in."""
        method.reset()
        return [np.asarray(output).tobytes() for output in method(*self.inputs(method))]


def path_of(program: str) -> Path:
    return PROGRAMS / f"{program}.pte"


def all_questions(most: int, has_torch: bool) -> list[Question]:
    """`most` questions to each program, at the most; to those whose host operators can run."""
    asked = {name: min(most, count) for name, count in ASKED.items() if has_torch or name != "two_delegates"}
    return [Question(name, seed) for name, count in asked.items() for seed in range(count)]


def answers(questions: Sequence[Question]) -> dict[Question, list[bytes]]:
    """What programs that were just loaded say."""
    found = {}
    for name in dict.fromkeys(question.program for question in questions):
        with pteron.load(path_of(name)) as program:
            for question in questions:
                if question.program == name:
                    found[question] = question.ask(program["forward"])
    return found


def stream(llm: LLM, prompt: Sequence[int] | str, sampling: Sampling) -> Generator[Piece, None, None]:
    return llm.generate(prompt, max_new_tokens=TOKENS, sampling=sampling, stop_ids=())


def tokens(pieces: Iterable[Piece]) -> list[int]:
    """The tokens of a stream; the last piece may only complete a character."""
    return [piece.token for piece in pieces][:TOKENS]
