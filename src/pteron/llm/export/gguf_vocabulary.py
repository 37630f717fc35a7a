"""The tokenizer in a GGUF file's metadata -> the vocabulary of a checkpoint."""

from __future__ import annotations

from typing import Any

from pteron.llm.export.checkpoint import Vocabulary
from pteron.llm.tokenizers.gguf import read_gguf_vocabulary


def read_vocabulary(fields: dict[str, Any], name: str) -> Vocabulary:
    found = read_gguf_vocabulary(fields, name)
    files = {"tokenizer.json": found.tokenizer.to_str().encode()}
    return Vocabulary(
        "tokenizer.json", files, found.bos_id, found.eos_ids, found.adds_bos, found.chat_template
    )
