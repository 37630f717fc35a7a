"""Perplexity of a text: the metric for comparing a model with eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pteron.llm import LanguageModel


def perplexity(model: LanguageModel, ids: Sequence[int]) -> float:
    """The exponential of the mean loss per token, each predicted from all before it."""
    model.reset()
    losses = []
    logits = model.prefill(ids[:1])
    for token in ids[1:]:
        shares = logits.astype(np.float64) - logits.max()
        losses.append(np.log(np.exp(shares).sum()) - shares[token])
        logits = model.decode_one_token(token)
    return float(np.exp(np.mean(losses)))
