"""Perplexity of a text whose tokens are each predicted by a prefill of all tokens before it.

    python benchmarks/prefill_perplexity.py smollm2 tests/fixtures/llm/essay.txt [--products f16]

Prefills of 17 and more tokens use matrix cores, where a device has them; `pteron bench --perplexity` predicts
tokens one by one, which does not. So the first 17 tokens are only read.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pteron.llm import LLM

READ = 17  # tokens that are not predicted


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder, a program or a name")
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=166, help="of the text, at most")
    parser.add_argument("--products", choices=("f32", "f16"))
    arguments = parser.parse_args()
    with LLM(arguments.model, products=arguments.products) as llm:
        ids = llm.encode(arguments.text.read_text("utf-8"))[: arguments.tokens]
        losses = [loss(llm, ids[:end], ids[end]) for end in range(READ, len(ids))]
        device = llm.model.device.adapter
    print(f"perplexity {math.exp(np.mean(losses)):.4f} of {len(losses)} tokens on {device}")


def loss(llm: LLM, before: Sequence[int], token: int) -> float:
    """The negative logarithm of a token's probability."""
    llm.model.reset()
    logits = llm.model.prefill(before).astype(np.float64).reshape(-1)
    largest = logits.max()
    return float(np.log(np.exp(logits - largest).sum()) + largest - logits[token])


if __name__ == "__main__":
    main()
