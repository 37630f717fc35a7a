"""What is to be served: a folder, a program or a name -> a language model, or an encoder."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pteron.errors import UnsupportedError
from pteron.llm import LLM
from pteron.serving.encoder import Encoder


def opened(
    path: str | os.PathLike[str],
    tokenizer: str | None = None,
    *,
    data: Sequence[str] = (),
    device: str | None = None,
    digits: int | None = None,
    sequences: int | None = None,
    cache_bytes: int | None = None,
) -> LLM | Encoder:
    """The model at a path. Where it is neither, the error says why it is no language model."""
    try:
        return LLM(
            path,
            tokenizer,
            data=data,
            device=device,
            digits=digits,
            sequences=sequences,
            cache_bytes=cache_bytes,
        )
    except UnsupportedError as why_not:
        try:
            return Encoder(path, device=device)
        except UnsupportedError:
            raise why_not from None
