"""tiktoken's rank files (Llama 3's tokenizer.model, qwen.tiktoken), encoded by the `tiktoken` library.

Each line is a token in base64 and its rank, which is its id. The file has neither the pattern that splits
text into words nor the control tokens: both come from the model family, which the number of ranks identifies.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path

from pteron.errors import FormatError
from pteron.extras import need
from pteron.format.source import read_file
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.names.model_files import COMPANION_BYTES_MAX, as_format_error


def words(digits: str) -> str:
    """GPT-4's pattern of words; families differ in how many digits they group."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"  # English contractions
        r"|[^\r\n\p{L}\p{N}]?\p{L}+"  # a word, with one space or mark before it
        rf"|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*"  # punctuation, with the line ends after it
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"  # white space, leaving one space to the next word
    )


@dataclass(frozen=True)
class TiktokenFamily:
    """What ranks do not say: how a family of models splits texts, and its control tokens."""

    pattern: str
    controls: dict[int, str]  # by offset from the last rank
    count: int  # ids after the last rank
    bos: str | None
    eos: tuple[str, ...]


LLAMA_3 = TiktokenFamily(
    words(r"\p{N}{1,3}"),
    {
        0: "<|begin_of_text|>",
        1: "<|end_of_text|>",
        4: "<|finetune_right_pad_id|>",
        6: "<|start_header_id|>",
        7: "<|end_header_id|>",
        8: "<|eom_id|>",
        9: "<|eot_id|>",
        10: "<|python_tag|>",
    },
    256,
    "<|begin_of_text|>",
    ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
)
QWEN = TiktokenFamily(
    words(r"\p{N}"),
    {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>"},
    3,
    None,
    ("<|endoftext|>", "<|im_end|>"),
)
OTHER = TiktokenFamily(words(r"\p{N}{1,3}"), {}, 0, None, ())
FAMILIES = {128_000: LLAMA_3, 151_643: QWEN}


class TiktokenTokenizer(Tokenizer):
    def __init__(self, file: Path) -> None:
        library = need("tiktoken", f"reading {file.name}")
        ranks = read_ranks(file)
        family = FAMILIES.get(len(ranks), OTHER)
        names = [family.controls.get(place, f"<|reserved_{place}|>") for place in range(family.count)]
        self._controls = {name: len(ranks) + place for place, name in enumerate(names)}
        self._tokens = {rank: token for token, rank in ranks.items()}
        self._ranks = ranks
        with as_format_error(f"`tiktoken` cannot read the ranks in {file.name}"):
            self._encoding = library.Encoding(
                file.name, pat_str=family.pattern, mergeable_ranks=ranks, special_tokens=self._controls
            )
        self.vocab_size = len(ranks) + family.count
        self.bos_id = self._controls[family.bos] if family.bos else None
        self.eos_ids = tuple(self._controls[name] for name in family.eos)
        self.adds_bos = family.bos is not None

    def token_bytes(self, token: int) -> bytes:
        return self._tokens.get(token, b"")

    def token_id(self, text: str) -> int | None:
        return self._controls.get(text, self._ranks.get(text.encode()))

    def token_text(self, token: int) -> str:
        names = {id: name for name, id in self._controls.items()}
        return names[token] if token in names else self.token_bytes(token).decode("utf-8", "replace")

    def _encode(self, text: str, special: bool) -> list[int]:
        ids: list[int] = self._encoding.encode(
            text, allowed_special="all" if special else set(), disallowed_special=()
        )
        return ids


def read_ranks(file: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_file(file, COMPANION_BYTES_MAX).splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise FormatError(f"{file.name}, line {number}: expected base64 token and rank") from error
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise FormatError(f"{file.name}: ranks must be 0, 1, 2, ... without gaps")
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:  # tiktoken starts from single bytes
        raise FormatError(f"{file.name}: {len(missing)} single bytes have no rank, such as {missing[0]:#04x}")
    return ranks
