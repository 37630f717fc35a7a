"""Tokenizers -> JSON for the player: byte pair encoding over bytes or over characters.

A tokenizer that needs more is an UnsupportedError: a page must never give a model other tokens than Python
does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from pteron.errors import UnsupportedError
from pteron.llm.tokenizers.huggingface import HuggingFaceTokenizer
from pteron.llm.tokenizers.llama2c import CONTROLS, FIRST_BYTE, FIRST_PIECE, Llama2cTokenizer
from pteron.llm.tokenizers.tokenizer import Tokenizer

Json: TypeAlias = Any
_BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(256)]
# GPT-2's rule, which ByteLevel applies by itself.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# What \s and others are in Oniguruma: of all scripts. JavaScript has them for ASCII, or with other spaces.
_UNICODE = {
    r"\s": r"\p{White_Space}",
    r"\S": r"\P{White_Space}",
    r"\d": r"\p{Nd}",
    r"\D": r"\P{Nd}",
    r"\b": r"(?:(?<=[\p{L}\p{M}\p{N}\p{Pc}])(?![\p{L}\p{M}\p{N}\p{Pc}])"
    r"|(?<![\p{L}\p{M}\p{N}\p{Pc}])(?=[\p{L}\p{M}\p{N}\p{Pc}]))",
    r"\'": "'",
}
_SHORT = re.compile(r"\\.")
_CLASS = re.compile(r"(\[\^?(?:\\.|[^\]\\])+\])")
_POSSESSIVE = re.compile(r"([?*+]|\{\d+(?:,\d*)?\})\+")
_CASELESS = re.compile(r"\(\?i:([^()]*)\)")


def tokenizer_json(tokenizer: Tokenizer) -> Json:
    """All that the player needs to encode and decode as this tokenizer does."""
    if isinstance(tokenizer, Llama2cTokenizer):
        found = _scored(tokenizer)
    elif isinstance(tokenizer, HuggingFaceTokenizer):
        found = _merged(tokenizer, json.loads(tokenizer._tokenizer.to_str()))
    else:
        raise UnsupportedError(
            f"{tokenizer.name}: pages take tokenizers of Hugging Face (tokenizer.json), of GGUF files and of "
            "llama2.c; put the model's tokenizer.json beside it"
        )
    opening = tokenizer.prefix_ids or (() if tokenizer.bos_id is None else (tokenizer.bos_id,))
    return {**found, "bos": list(opening) if tokenizer.adds_bos else []}


def _scored(tokenizer: Llama2cTokenizer) -> Json:
    pieces = [piece.decode("utf-8", "replace") for piece in tokenizer._pieces[FIRST_PIECE:]]
    return {
        "tokens": [*CONTROLS, *_BYTE_NAMES, *pieces],
        "isByteLevel": False,
        "scores": list(tokenizer._scores),
        "hidden": [0, FIRST_PIECE],
        "normalize": [["prepend", " "]],
        "splits": [],
        "isWholeWord": False,
        "prefixSpace": False,
        "firstByte": FIRST_BYTE,
        "unknown": 0,
        "added": [_added(id, text) for id, text in enumerate(CONTROLS)],
    }


def _added(id: int, text: str) -> Json:
    return {"id": id, "text": text, "isSpecial": True, "lstrip": False, "rstrip": False}


def _merged(tokenizer: HuggingFaceTokenizer, written: Json) -> Json:
    name, model = tokenizer.name, written["model"]
    if model["type"] != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise UnsupportedError(f"{name}: pages take byte pair encoding, not {model['type']}")
    splits, is_byte_level, prefix_space = _pre_tokenizer(name, written.get("pre_tokenizer"))
    tokens = [tokenizer.token_text(id) for id in range(tokenizer.vocab_size)]
    vocabulary: dict[str, int] = model["vocab"]
    has_bytes = bool(model.get("byte_fallback")) and all(each in vocabulary for each in _BYTE_NAMES)
    if has_bytes and [vocabulary[each] - vocabulary[_BYTE_NAMES[0]] for each in _BYTE_NAMES] != list(
        range(256)
    ):
        raise UnsupportedError(f"{name}: its tokens of single bytes do not follow one another")
    unknown = model.get("unk_token")
    normalize = [*_normalizer(name, written.get("normalizer"))]
    added = written.get("added_tokens") or ()
    for each in added:  # tokens that are looked for in the normalized text: only NFC leaves them as they are
        if each["single_word"] or (each["normalized"] and any(step != ["nfc"] for step in normalize)):
            what = "whole words" if each["single_word"] else "normalized"
            raise UnsupportedError(
                f"{name}: pages do not know added tokens that are {what}: {each['content']}"
            )
    return {
        "tokens": tokens,
        "isByteLevel": is_byte_level,
        "merges": [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]],
        "normalize": [*normalize, *_metaspace(name, written.get("pre_tokenizer"))],
        "splits": splits,
        "isWholeWord": bool(model.get("ignore_merges")),
        "prefixSpace": prefix_space,
        "firstByte": vocabulary[_BYTE_NAMES[0]] if has_bytes else -1,
        "unknown": vocabulary.get(unknown, -1) if unknown is not None else -1,
        "added": [
            {
                "id": each["id"],
                "text": each["content"],
                "isSpecial": each["special"],
                "lstrip": each["lstrip"],
                "rstrip": each["rstrip"],
            }
            for each in added
        ],
    }


def _flat(step: Json, inner: str) -> Iterator[Json]:
    if step is not None and step["type"] == "Sequence":
        for each in step[inner]:
            yield from _flat(each, inner)
    elif step is not None:
        yield step


def _normalizer(name: str, normalizer: Json) -> Iterator[Json]:
    for step in _flat(normalizer, "normalizers"):
        kind = step["type"]
        if kind == "Prepend":
            yield ["prepend", step["prepend"]]
        elif kind == "Replace" and "String" in step["pattern"]:
            yield ["replace", step["pattern"]["String"], step["content"]]
        elif kind in ("NFC", "NFKC", "Lowercase"):
            yield [{"Lowercase": "lower"}.get(kind, kind.lower())]
        else:
            raise UnsupportedError(f"{name}: pages do not know the normalizer {kind}")


def _metaspace(name: str, step: Json) -> Iterator[Json]:
    """SentencePiece's mark of spaces, where it is a pre-tokenizer that splits nothing."""
    for each in _flat(step, "pretokenizers"):
        if each["type"] == "Metaspace":
            if each.get("split", True) or each.get("prepend_scheme") not in ("never", "first", "always"):
                raise UnsupportedError(f"{name}: pages do not know this pre-tokenizer: {each}")
            if each["prepend_scheme"] != "never":
                yield ["prepend", " "]
            yield ["replace", " ", each["replacement"]]


def _pre_tokenizer(name: str, step: Json) -> tuple[list[str], bool, bool]:
    """The rules that cut words, whether bytes become letters, and whether a space is put before a text."""
    splits, is_byte_level, prefix_space = [], False, False
    for each in _flat(step, "pretokenizers"):
        kind = each["type"]
        if kind == "ByteLevel":
            is_byte_level, prefix_space = True, each["add_prefix_space"]
            splits += [_GPT2] if each.get("use_regex", True) else []
        elif kind == "Digits":
            splits.append(r"\p{N}" if each["individual_digits"] else r"\p{N}+")
        elif kind == "Split" and each["behavior"] == "Isolated" and not each.get("invert"):
            pattern = each["pattern"]
            splits.append(re.escape(pattern["String"]) if "String" in pattern else pattern["Regex"])
        elif kind != "Metaspace":
            raise UnsupportedError(f"{name}: pages do not know the pre-tokenizer {kind} ({each})")
    return [_javascript(name, rule) for rule in splits], is_byte_level, prefix_space


def _javascript(name: str, rule: str) -> str:
    """A rule of Oniguruma as JavaScript has it (flag u)."""

    def both_cases(match: re.Match[str]) -> str:
        found, is_class = "", False
        for letter in match[1]:
            is_class = letter == "[" or (is_class and letter != "]")
            pair = letter.lower() + letter.upper() if letter.isalpha() else letter
            found += f"[{pair}]" if letter.isalpha() and not is_class else pair
        return f"(?:{found})"

    found = _CASELESS.sub(both_cases, rule)
    parts = _CLASS.split(found)  # those at odd places are classes, where + is a letter
    if _is_safe_greedy(found):
        parts[::2] = [_POSSESSIVE.sub(r"\1", part) for part in parts[::2]]
    outside, inside = "\n".join(parts[::2]), "\n".join(parts[1::2])
    if (
        _POSSESSIVE.search(outside)
        or re.search(r"\(\?[a-z>]|\\[AzZGhHwWBX]", outside)
        or re.search(r"&&|\[:", inside)
    ):
        raise UnsupportedError(f"{name}: its rule {rule!r} cannot be written in JavaScript")
    return _SHORT.sub(lambda match: _UNICODE.get(match[0], match[0]), "".join(parts))


def _is_safe_greedy(rule: str) -> bool:
    """Whether possessive repetitions may be plain ones: those of Llama 3's and Qwen's family of rules, where
    what follows a repetition never matches what it repeats."""
    return all(part in rule for part in (r"\p{L}", r"\p{N}", r"\s+(?!\S)"))
