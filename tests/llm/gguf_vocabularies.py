# ruff: noqa: RUF001
"""Small vocabularies in GGUF files, and the text that they are trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pteron.llm import Tokenizer, load_tokenizer

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
CORPUS = [
    "The quick brown fox jumps over the lazy dog; they're sure it's theirs, and I'll say WE'VE DONE IT.",
    "def add(a, b):\n    return a + b  # sums\n\nfor i in range(10):\n\tprint(f'{i:>3} == {add(i, 1)}')\n",
    "camelCase HTTPServer XMLHttpRequest snake_case kebab-case $price <= 100% && x != y || !z",
    "In 1984, 2,048 people paid 12345.67 for 1000000 things; ½ and ² are numbers too, ١٢٣ as well.",
    "世界の言葉は美しい。中文字符，以及标点！日本語のカタカナとひらがな。한국어 단어도 있습니다.",
    "Здравствуй, мир! Ωμέγα και άλφα. naïve café über Åse. שלום עולם مرحبا بالعالم नमस्ते दुनिया",
    "😀👩‍👩‍👧 ✅🚀🚀 … “quoted” ‘text’ — dashes – ～！？ ①②③",
    "line one\r\nline two\n\n\n   indented\t\ttabs  and   spaces    \n \n x",
] * 4
STRINGS = [
    *CORPUS[:8],
    "",
    " ",
    "   ",
    "\n",
    " \n \n\n  x  ",
    "3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3",
    "I've 'told he's there, 'RE you? 'M not, I'll, 'D you? We'Ve a'lL",
    "e\u0301a\u0308 Cửa Việt A\u030a",
    "<|end|><s></s><unk>[CLS]<0x41>",
]
# Pieces of which generated texts consist: classes of characters that word rules distinguish.
FRAGMENTS = (
    " ", "  ", "\n", "\r\n", "\t", "\n\n ", "\u00a0", "\u3000",
    "the", "The", "HTTP", "camelCase", "s", "x", "'s", "'S", "'ll", "'", "é", "e\u0301", "Ñ", "ß", "ǅ", "ʰ",
    "1", "12", "345", "6789012", "²", "½", "١٢", "Ⅻ",
    ".", "...", "!?", "$", "+=", "<", "|>", "_", "-", "/", "`", "#", "(", ")", "{}", '"', "…", "“", "—",
    "Ж", "мир", "Ω", "ά", "שלום", "مر", "नमस्ते", "ไทย", "😀", "👩‍👩‍👧",
    "世界", "中", "の", "カタ", "ー", "。", "，", "！", "한국", "ㅎ",
)  # fmt: skip


def write_gguf(
    file: Path, model: str, tokens: list[str], fill: Callable[[Any], None] = lambda writer: None, **lists: Any
) -> Path:
    """A file with a vocabulary and nothing else. `lists`: types, scores, merges; `fill` adds other fields."""
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(lists.get("types") or [NORMAL] * len(tokens))
    if "scores" in lists:
        writer.add_token_scores(lists["scores"])
    if "merges" in lists:
        writer.add_token_merges(lists["merges"])
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def train_byte_level(pre_tokenizer: Any, normalizer: Any = None, ignore_merges: bool = False) -> Any:
    """Byte pairs, with a control token and one that a model's authors added."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|end|>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([tokenizers.AddedToken("<think>", normalized=False)])
    return tokenizer


def content_of(tokenizer: Any) -> tuple[list[str], list[int], list[str]]:
    """Texts and types of tokens by id, and merges, as converters write them."""
    content = json.loads(tokenizer.to_str())
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    types = dict.fromkeys(tokens, NORMAL)
    for added in content["added_tokens"]:
        types[added["content"]] = CONTROL if added["special"] else USER_DEFINED
    merges = [" ".join(pair) for pair in content["model"].get("merges", [])]
    return tokens, list(types.values()), merges


def load_byte_level(file: Path, tokenizer: Any, pre: str, model: str = "gpt2") -> Tokenizer:
    tokens, types, merges = content_of(tokenizer)

    def fill(writer: Any) -> None:
        writer.add_tokenizer_pre(pre)

    return load_tokenizer(write_gguf(file, model, tokens, fill, types=types, merges=merges))
