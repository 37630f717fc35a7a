"""A file or a folder -> its tokenizer.

tokenizer = load_tokenizer("folder or file")
ids = tokenizer.encode("Once upon a time", bos=tokenizer.adds_bos)
tokenizer.decode(ids)
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pteron.errors import FormatError
from pteron.folders import existing
from pteron.format.foreign import describe_placeholder
from pteron.format.gguf import MAGIC
from pteron.format.source import open_file
from pteron.llm.tokenizers.gguf import load_gguf_tokenizer
from pteron.llm.tokenizers.huggingface import load_tokenizer_json
from pteron.llm.tokenizers.llama2c import Llama2cTokenizer
from pteron.llm.tokenizers.sentencepiece_model import SentencePieceTokenizer
from pteron.llm.tokenizers.tiktoken_ranks import TiktokenTokenizer
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.names.model_files import ModelFolder

RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\s")


def load_tokenizer(given: str | os.PathLike[str] | ModelFolder) -> Tokenizer:
    """The tokenizer in a file or folder.

    The format is recognised by content: Hugging Face's tokenizer.json, a SentencePiece model, tiktoken ranks,
    llama2.c's tokenizer.bin or a GGUF file. Configuration files in the same folder give the ids that begin
    and end a text and the chat template; a GGUF file has its own.
    """
    path = given.path if isinstance(given, ModelFolder) else existing(given)
    if path.is_file() and _head(path).startswith(MAGIC):
        return load_gguf_tokenizer(path)
    folder = given if isinstance(given, ModelFolder) else ModelFolder.of(path)
    config = folder.tokenizer_config
    file = folder.tokenizer if path.is_dir() else path
    tokenizer = _open(file)
    tokenizer.name = file.name
    tokenizer.apply(config)
    return tokenizer


def _head(file: Path) -> bytes:
    with open_file(file) as opened:
        return opened.read(4096)


def _open(file: Path) -> Tokenizer:
    head = _head(file)
    placeholder = describe_placeholder(head)
    if placeholder:
        raise FormatError(f"{file.name} is {placeholder}")
    if head.lstrip()[:1] == b"{" or file.suffix == ".json":
        return load_tokenizer_json(file)
    if RANK_LINE.match(head):
        return TiktokenTokenizer(file)
    # A SentencePiece model is a protocol buffer whose first field has tag 10; llama2.c's file begins with
    # a small integer of four bytes.
    if head[:1] == b"\n" and head[1:4] != b"\0\0\0":
        return SentencePieceTokenizer(file)
    return Llama2cTokenizer(file)
