"""Texts that show what enters a model's matrices: conversations.json, in the form that the model knows."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from pteron.errors import InputError
from pteron.llm.chat import render
from pteron.llm.export.checkpoint import Vocabulary
from pteron.llm.tokenizers.load import load_tokenizer

CONVERSATIONS = Path(__file__).with_name("conversations.json")  # pairs of a question and its answer
TEXT_TOKENS = 256  # of each text, all being of one length


def calibration_texts(vocabulary: Vocabulary, vocabulary_size: int) -> list[list[int]]:
    """Tokens of texts, all of one length and none past the model's table."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in vocabulary.files.items():
            (Path(folder) / name).write_bytes(content)
        tokenizer = load_tokenizer(folder)
    ids: list[int] = []
    for question, answer in json.loads(CONVERSATIONS.read_text("utf-8")):
        text = _rendered(question, answer, vocabulary.chat_template)
        ids += tokenizer.encode(text, bos=vocabulary.adds_bos, special=True)
    ids = [id for id in ids if id < vocabulary_size]
    length = min(TEXT_TOKENS, len(ids))
    return [ids[start : start + length] for start in range(0, len(ids) - length + 1, max(length, 1))]


def _rendered(question: str, answer: str, template: str | None) -> str:
    """A conversation as the model's template has it; plain text where it has none, or one that objects."""
    if template is not None:
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        try:
            return render(messages, template, add_generation_prompt=False)
        except InputError:
            pass
    return f"{question}\n\n{answer}\n\n"
