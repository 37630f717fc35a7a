"""A language model and a text -> its perplexity: how well the model predicts each token from those before."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np

from pteron.errors import InputError
from pteron.llm.model import LanguageModel
from pteron.llm.text_model import TextModel
from pteron.names.model_files import read_utf8
from pteron.tools import Progress, silent


@dataclass(frozen=True, slots=True)
class Perplexity:
    value: float
    tokens: int  # predicted ones: all but the first
    bits_per_byte: float  # comparable between tokenizers
    seconds: float


def measure_perplexity(llm: TextModel, file: Path, progress: Progress = silent) -> Perplexity:
    """The perplexity of a text file. A text beyond the context is cut into parts of the context's length,
    which are predicted independently."""
    text = read_utf8(file)
    ids = llm.encode(text)
    if len(ids) < 2:
        raise InputError(f"{file} has one token; a perplexity needs at least two")
    started, losses = time.perf_counter(), []
    size = llm.model.context or len(ids)
    for start in range(0, len(ids) - 1, size - 1):  # the last token of a part is the first of the next
        for loss in token_losses(llm.model, ids[start : start + size]):
            losses.append(loss)
            progress(f"perplexity of {file.name}", len(losses), len(ids) - 1)
    total = sum(losses)
    seconds = time.perf_counter() - started
    return Perplexity(exp(total / len(losses)), len(losses), total / log(2) / len(text.encode()), seconds)


def perplexity(model: LanguageModel, ids: Sequence[int]) -> float:
    """The exponential of the mean loss of all tokens but the first."""
    return exp(float(np.mean(list(token_losses(model, ids)))))


def token_losses(model: LanguageModel, ids: Sequence[int]) -> Iterator[float]:
    """-log(probability) of each token but the first, one after the other through the KV cache."""
    model.reset()
    logits = model.prefill(ids[:1])
    for position, token in enumerate(ids[1:], 2):
        shares = logits.astype(np.float64) - logits.max()
        yield float(np.log(np.exp(shares).sum()) - shares[token])
        if position < len(ids):
            logits = model.decode_one_token(token)
