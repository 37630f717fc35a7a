"""What is to be served: a folder, a program or a name -> a language model, or what makes vectors of texts."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pteron.errors import UnsupportedError
from pteron.llm import LLM
from pteron.serving.embedder import Embedder
from pteron.serving.encoder import Encoder
from pteron.serving.hidden import HiddenStates, writes


def opened(
    path: str | os.PathLike[str],
    tokenizer: str | None = None,
    *,
    data: Sequence[str] = (),
    device: str | None = None,
    digits: int | None = None,
    sequences: int | None = None,
    cache_bytes: int | None = None,
) -> LLM | Embedder:
    """The model at a path. Where it is neither, the error says why it is no language model."""
    try:
        return served(
            LLM(
                path,
                tokenizer,
                data=data,
                device=device,
                digits=digits,
                sequences=sequences,
                cache_bytes=cache_bytes,
            )
        )
    except UnsupportedError as why_not:
        try:
            return Encoder(path, tokenizer, data=data, device=device)
        except UnsupportedError:
            raise why_not from None


def served(llm: LLM) -> LLM | Embedder:
    """A language model, or where its program writes no text what it gives instead."""
    if writes(llm):
        return llm
    return HiddenStates(llm, llm.model, 0, vocabulary=llm.tokenizer.vocab_size)
