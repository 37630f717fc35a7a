# ruff: noqa: RUF001
"""The word rules of GGUF files give the tokens of each family's own tokenizer.

The references are built as the families publish them: the pre-tokenizer of their tokenizer.json, or the
pattern of their tiktoken tokenizer.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from gguf_vocabularies import (
    CORPUS,
    FRAGMENTS,
    STRINGS,
    load_byte_level,
    tokenizers,
    train_byte_level,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pteron.errors import UnsupportedError
from pteron.llm import Tokenizer
from pteron.llm.tokenizers.word_rules import PIECE_RULES, WORD_RULES

steps = tokenizers.pre_tokenizers
NFC = tokenizers.normalizers.NFC()
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.characters(codec="utf-8"), max_size=12).map("".join)
same = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=150
)


def split(*patterns: str) -> Any:
    splits = [steps.Split(tokenizers.Regex(pattern), "isolated") for pattern in patterns]
    return steps.Sequence([*splits, BYTES])


BYTES = steps.ByteLevel(add_prefix_space=False, use_regex=False)
GPT_2 = steps.ByteLevel(add_prefix_space=False, use_regex=True)
DIGITS = steps.Sequence([steps.Digits(individual_digits=True), GPT_2])
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = CL100K.replace("{1,3}", "")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
KIMI = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)
HUGGING_FACE: dict[str, Any] = {  # name: pre-tokenizer, normalizer, ignore_merges
    "gpt-2": (GPT_2,),
    "olmo": (GPT_2, NFC),
    "starcoder": (DIGITS,),
    "smollm": (DIGITS,),
    "command-r": (DIGITS, NFC),
    "llama-bpe": (split(CL100K), None, True),
    "dbrx": (split(CL100K),),
    "qwen2": (split(QWEN), NFC),
    "qwen35": (
        split(
            QWEN.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|").replace(r"?[^\s\p{L}\p{N}]", r"?[^\s\p{L}\p{M}\p{N}]")
        ),
        NFC,
    ),
    "gpt-4o": (split(O200K),),
    "tekken": (split(TEKKEN), None, True),
    "bloom": (split(r" ?[^(\s|[.,!?…。，、।۔،])]+"),),
    "viking": (
        steps.Sequence(
            [
                steps.Split(tokenizers.Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"), "isolated"),
                steps.Digits(individual_digits=True),
                BYTES,
            ]
        ),
    ),
    "falcon": (
        steps.Sequence(
            [
                steps.Punctuation("contiguous"),
                GPT_2,
                steps.Digits(individual_digits=False),
                steps.Split(tokenizers.Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        ),
    ),
    "deepseek-coder": (
        steps.Sequence(
            [
                steps.Split(tokenizers.Regex("[\r\n]"), "isolated"),
                steps.Split(tokenizers.Regex(r"\s?\p{L}+"), "isolated"),
                steps.Split(tokenizers.Regex(r"\s?\p{P}+"), "isolated"),
                steps.Split(tokenizers.Regex("[一-龥ࠀ-一가-\ud7ff]+"), "isolated"),
                steps.Digits(individual_digits=True),
                BYTES,
            ]
        ),
    ),
    "deepseek-v3": (split(*DEEPSEEK_V3),),
    "bailingmoe": (
        split(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
            r"|\s*[\r\n]|\s+(?!\S)|\s+"
        ),
    ),
    "seed-coder": (
        split(
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+"
            "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
        ),
    ),
    "exaone-moe": (
        split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        ),
    ),
    "tiny_aya": (split(r"\d{1,3}(?=(?:\d{3})*\b)", O200K),),
}


@pytest.mark.long(every=5)
@pytest.mark.parametrize("pre", HUGGING_FACE)
def test_tokens_are_those_of_hugging_face(pre: str, tmp_path: Path) -> None:
    theirs = train_byte_level(*HUGGING_FACE[pre])
    ours = load_byte_level(tmp_path / "model.gguf", theirs, pre)

    def check(text: str) -> None:
        assert ours.encode(text, special=True) == theirs.encode(text).ids

    for text in [*STRINGS, "a<think>b <|end|>"]:
        check(text)
    same(given(TEXTS)(check))()


@pytest.mark.parametrize(("pre", "pattern"), [("llama-bpe", CL100K), ("gpt-4o", O200K), ("kimi-k2", KIMI)])
def test_tokens_are_those_of_tiktoken(pre: str, pattern: str, tmp_path: Path) -> None:
    """tiktoken has a regex engine of its own, and merges by rank."""
    tiktoken = pytest.importorskip("tiktoken")
    trained = train_byte_level(split(pattern))
    ours = load_byte_level(tmp_path / "model.gguf", trained, pre)
    ranks = {ours.token_bytes(id): id for id in range(1, ours.vocab_size - 1)}
    encoding = tiktoken.Encoding(pre, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def check(text: str) -> None:
        assert ours.encode(text) == encoding.encode(text, disallowed_special=())

    for text in STRINGS:
        check(text)
    same(given(TEXTS)(check))()


@pytest.fixture(scope="module")
def byte_level() -> Any:
    return train_byte_level(GPT_2)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("pre", WORD_RULES)
def test_every_rule_keeps_the_text(pre: str, byte_level: Any, tmp_path: Path) -> None:
    tokenizer = load_byte_level(tmp_path / "model.gguf", byte_level, pre)
    for text in [*STRINGS, "".join(FRAGMENTS), "<sentinel:12> IMGIMGABZ"]:
        expected = unicodedata.normalize("NFC", text) if WORD_RULES[pre].nfc else text
        assert tokenizer.decode(tokenizer.encode(text)) == expected


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    library: Any = tokenizer
    return [text[start:end] for _, (start, end) in library._tokenizer.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("default", "a, b's 12345!", ["a", ",", " b", "'", "s", " ", "123", "45", "!"]),
        ("falcon", "x= `1234`", ["x", "=", " ", "`", "123", "4", "`"]),
        ("afmoe", "1234567 世界 .py", ["1", "234", "567", " ", "世界", " .", "py"]),
        ("superbpe", "by the 1234567 way", ["by the ", "1", "234", "567", " way"]),
        ("deepseek-llm", "a b，c\n中文12", ["a", " b", "，", "c", "\n", "中文", "12"]),
        ("deepseek-v3", "x.append(12345)", ["x", ".append", "(", "123", "45", ")"]),
        ("spark2_5", "a.\n\nb", ["a", ".", "\n", "\n", "b"]),
        ("youtu", "한국어ㄅ中Abc12", ["한국어", "ㄅ", "中", "Abc", "1", "2"]),
        ("chameleon", "a  b IMGIMGABZ1", ["a", "  ", "b", " ", "IMGIMGABZ", "1"]),
        ("jais-2", "a     b", ["a", "    ", " b"]),
        ("minicpm5", "x1234", ["x", "123", "4"]),
        ("laguna", "a \n\n b", ["a", " ", "\n\n", " b"]),
        ("ufakzeka", "Ali's", ["Ali", "'s"]),
        ("kimi-k2", "Hello世界World", ["Hello", "世界", "World"]),
        ("minerva-7b", "a 12", ["a", " ", "1", "2"]),
        ("glm4", "a 1234", ["a", " ", "123", "4"]),
        ("granite-embed-multi-97m", "camelCase", ["camel", "Case"]),
    ],
)
def test_words(pre: str, text: str, expected: list[str], byte_level: Any, tmp_path: Path) -> None:
    """Rules without a reference here, in an example each."""
    assert pieces(load_byte_level(tmp_path / "model.gguf", byte_level, pre), text) == expected


def test_an_unknown_rule_is_refused_with_the_known_ones(byte_level: Any, tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"model\.gguf: tokenizer\.ggml\.pre is 'gpt-7'; known are"
    ) as error:
        load_byte_level(tmp_path / "model.gguf", byte_level, "gpt-7")
    for name in ("default", "llama-bpe", "kimi-k2", "gemma4"):
        assert f" {name}" in str(error.value)


@pytest.mark.parametrize("pre", PIECE_RULES)
def test_merged_pieces(pre: str, tmp_path: Path) -> None:
    """Gemma's tokenizer.json: spaces become ▁, merges cross words, other characters are bytes."""
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    theirs.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    singles = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=800, special_tokens=["<unk>", "<bos>", *singles], show_progress=False, max_token_length=8
    )
    theirs.train_from_iterator(CORPUS[:-1], trainer)
    ours = load_byte_level(tmp_path / "model.gguf", theirs, pre, "gemma4" if pre == "gemma4" else "gpt2")
    for text in STRINGS:
        assert ours.encode(text, special=True) == theirs.encode(text).ids
