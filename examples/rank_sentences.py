"""Ranks sentences by how near their meaning is to a question's: all-MiniLM-L6-v2 on the GPU.

    python examples/rank_sentences.py [QUESTION SENTENCE ...]

Sentences of any length up to 256 tokens go through one graph, which is compiled once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from models.minilm import TOKENS_MAX, trained
from tokenizers import Tokenizer

import pteron

QUESTION = "How do I teach my dog to come when I call?"
SENTENCES = (
    "Puppies learn best when a treat follows at once.",
    "The central bank left interest rates unchanged on Thursday.",
    "Say its name in a friendly voice, wait until it runs to you, then praise it; repeat this every day, "
    "first in the garden, later among other animals, and never scold it for having been slow.",
    "My telephone does not ring any more.",
    "Cats sleep for most of the day.",
    "Whisk the eggs with sugar until they are pale.",
)


@dataclass(frozen=True)
class Ranking:
    """Sentences by number, nearest first, each with its cosine; and how the vectors differ from PyTorch's."""

    order: list[int]
    cosines: list[float]
    difference_max: float
    same_order: bool


def tokenize(tokenizer: Path, sentences: Sequence[str]) -> list[torch.Tensor]:
    """The tokens [S] of each sentence, with those that mark its begin and end."""
    reader = Tokenizer.from_file(str(tokenizer))
    reader.no_padding()
    reader.enable_truncation(TOKENS_MAX)
    return [torch.tensor(encoding.ids) for encoding in reader.encode_batch(list(sentences))]


def compile_for_any_length(model: Any, tokens_max: int = TOKENS_MAX) -> Any:
    length = torch.export.Dim("length", min=1, max=tokens_max)
    return pteron.compile(
        model, (torch.zeros(tokens_max, dtype=torch.long),), dynamic_shapes={"tokens": {0: length}}
    )


@torch.no_grad()
def rank(model: Any, compiled: Any, question: torch.Tensor, sentences: Sequence[torch.Tensor]) -> Ranking:
    """The order of the sentences by the compiled model, beside the model itself in PyTorch."""
    found, expected = (
        torch.cat([embed(tokens) for tokens in (question, *sentences)]) for embed in (compiled, model)
    )
    cosines = found[1:] @ found[0]
    order = cosines.argsort(descending=True)
    return Ranking(
        order.tolist(),
        cosines[order].tolist(),
        float((found - expected).abs().max()),
        torch.equal(order, (expected[1:] @ expected[0]).argsort(descending=True)),
    )


def main(arguments: Sequence[str]) -> None:
    question, *sentences = arguments or (QUESTION, *SENTENCES)
    model, tokenizer = trained()
    compiled = compile_for_any_length(model)
    print(compiled)
    tokens = tokenize(tokenizer, (question, *sentences))
    ranking = rank(model, compiled, tokens[0], tokens[1:])
    print(question)
    for index, cosine in zip(ranking.order, ranking.cosines, strict=True):
        print(f"  {cosine:6.3f}  {sentences[index]}  ({len(tokens[1 + index])} tokens)")
    print(
        f"beside PyTorch: vectors differ by {ranking.difference_max:.1e} at most, "
        f"the ranking is {'the same' if ranking.same_order else 'another'}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
