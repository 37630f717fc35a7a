"""An encoder of letters: a folder with a program, whose states are rows of a table, and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

PROGRAM = Path(__file__).parent / "fixtures" / "programs" / "letters.pte"


def letters_table() -> np.ndarray[Any, Any]:
    """[128, 5], as the program has it."""
    return np.random.default_rng(3).standard_normal((128, 5)).astype(np.float32)


def letters_mean(text: str) -> np.ndarray[Any, Any]:
    """The vector of a text, in float64."""
    vector = letters_table()[[ord(letter) for letter in text]].astype(np.float64).mean(0)
    length: np.ndarray[Any, Any] = vector / np.linalg.norm(vector)
    return length


def write_letters(folder: Path) -> None:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    (folder / "model.pte").write_bytes(PROGRAM.read_bytes())
    tokenizer = Tokenizer(models.WordLevel({chr(code): code for code in range(128)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
