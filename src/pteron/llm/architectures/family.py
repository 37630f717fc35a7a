"""A family of language models: how a configuration becomes a decoder, and where its tensors are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pteron.llm.architectures.names import Config, Names
from pteron.llm.architectures.parts import Decoder


@dataclass(frozen=True)
class Family:
    """`decoder` takes a configuration in Hugging Face's terms; a GGUF file's metadata is translated first."""

    decoder: Callable[[Config], Decoder]
    names: Names  # of tensors in Hugging Face checkpoints
    gguf_names: Names | None = None  # in GGUF files, whose `general.architecture` is the family's name
