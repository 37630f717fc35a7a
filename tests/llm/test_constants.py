"""Programs whose constants and shapes are not those of a language model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import Device, FormatError, InputError, Program, UnsupportedError
from pteron.llm import LanguageModel

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAN = float("nan")


class Strange:
    """A program, some of whose methods give something else."""

    def __init__(self, program: Program, results: dict[str, tuple[object, ...]]) -> None:
        self._program = program
        self._results = results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def __contains__(self, name: str) -> bool:
        return name in self._results or name in self._program

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name in self._results:
            return lambda: self._results[name]
        method: Callable[..., Any] = self._program[name]
        return method


def loaded(device: Device, **results: tuple[object, ...]) -> LanguageModel:
    program: Any = pteron.load(FIXTURES / "models" / "tiny_llama_q4.pte", device=device)
    return LanguageModel(Strange(program, results))  # type: ignore[arg-type]  # what it needs of a program


@pytest.mark.parametrize("name", ["get_max_context_len", "get_bos_id", "get_eos_ids"])
@pytest.mark.parametrize("value", [NAN, 1.5, "abc", None, True, [1, 2], np.zeros((3, 4))], ids=str)
def test_constants_of_wrong_types(device: Device, name: str, value: object) -> None:
    with pytest.raises(FormatError, match=rf"tiny_llama_q4\.pte: {name} is no constant"):
        loaded(device, **{name: (value,)})


def test_a_context_of_less_than_nothing(device: Device) -> None:
    with pytest.raises(FormatError, match=r"tiny_llama_q4\.pte: a context of -5 tokens"):
        loaded(device, get_max_context_len=(-5,))


def test_a_token_that_opens_texts_but_is_none(device: Device) -> None:
    model = loaded(device, get_bos_id=(10**9,))
    with pytest.raises(InputError, match="token 1000000000 is outside the vocabulary"):
        model.prefill([model.bos_id or 0])


def test_no_logits(device: Device) -> None:
    """A loss is a single number."""
    program = pteron.load(FIXTURES / "programs" / "training.pte", device=device)
    with pytest.raises(UnsupportedError, match="not a language model"):
        LanguageModel(program)
