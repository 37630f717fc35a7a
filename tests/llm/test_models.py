"""Every exported form of the tiny models, against eager PyTorch's logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llm_fixtures import MODELS

import pteron
from pteron import Device, FormatError, Program
from pteron.llm import LanguageModel
from pteron.llm.cache.options import stated_context

TOLERANCE = {
    "tiny_llama_fp32": 1e-4,
    "tiny_qwen3_fp32": 1e-4,
    "tiny_llama_q4": 1e-4,
    "tiny_llama_q4_emb4": 1e-4,
    "tiny_llama_8da4w": 1e-4,
    "tiny_llama_q4_static": 1e-4,
    "tiny_llama_q4_full": 1e-4,  # logits of every position; only the last are used
    "tiny_llama_q4_fp16": 1e-2,
}
LENGTHS = [7, 31, 1, 16, 2, 31, 7, 2, 16, 1]


@pytest.fixture(params=TOLERANCE, scope="module")
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return LanguageModel(pteron.load(MODELS / f"{request.param}.pte"))


def tolerance(model: LanguageModel) -> float:
    return TOLERANCE[Path(model.program.file.name).stem]


@pytest.mark.long(every=4)
def test_goldens(model: LanguageModel) -> None:
    golden = np.load(Path(model.program.file.name).with_suffix(".npz"))
    for _ in range(2):  # a second time over what the first left in the cache
        model.reset()
        logits = model.prefill(golden["prompt"].tolist())
        last = golden["logits_prefill"].reshape(-1, model.vocabulary)[-1]
        np.testing.assert_allclose(logits, last, atol=tolerance(model), rtol=0)
        for token, expected in zip(golden["decode_tokens"].tolist(), golden["logits_decode"], strict=True):
            step = model.decode_one_token(token)
            np.testing.assert_allclose(step, expected, atol=tolerance(model), rtol=0)


@pytest.mark.long(every=2)
def test_any_length_in_any_order_equals_single_steps(model: LanguageModel) -> None:
    tokens = np.random.default_rng(5).integers(3, model.vocabulary, 40).tolist()
    single = []
    model.reset()
    for token in tokens:
        single.append(model.decode_one_token(token))
    for length in LENGTHS:
        model.reset()
        logits = model.prefill(tokens[:length])
        np.testing.assert_allclose(logits, single[length - 1], atol=tolerance(model), rtol=0)
        for position in range(length, length + 3):
            step = model.decode_one_token(tokens[position])
            np.testing.assert_allclose(step, single[position], atol=tolerance(model), rtol=0)


def test_a_prompt_of_three_times_the_sequence() -> None:
    golden = np.load(MODELS / "tiny_llama_q4_short.npz")
    model = LanguageModel(pteron.load(MODELS / "tiny_llama_q4_short.pte"))
    assert len(golden["prompt"]) == 3 * model.steps_max
    for _ in range(2):
        model.reset()
        logits = model.prefill(golden["prompt"].tolist())
        assert model.position == len(golden["prompt"])
        np.testing.assert_allclose(logits, golden["logits_prefill"].reshape(-1), atol=1e-4, rtol=0)
        for token, expected in zip(golden["decode_tokens"].tolist(), golden["logits_decode"], strict=True):
            np.testing.assert_allclose(model.decode_one_token(token), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["mlp", "training"])  # a loss is a single number
def test_programs_that_are_no_language_model_are_refused(name: str) -> None:
    program = pteron.load(MODELS.parent / "programs" / f"{name}.pte")
    with pytest.raises(pteron.UnsupportedError, match="not a language model"):
        LanguageModel(program)


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
    program: Any = pteron.load(MODELS / "tiny_llama_q4.pte", device=device)
    return LanguageModel(Strange(program, results))  # type: ignore[arg-type]  # what it needs of a program


@pytest.mark.parametrize("name", ["get_bos_id", "get_eos_ids"])
@pytest.mark.parametrize(
    "value", [1.5, "abc", None, np.zeros((3, 4))], ids=["float", "text", "none", "array"]
)
def test_constants_of_wrong_types(device: Device, name: str, value: object) -> None:
    with pytest.raises(FormatError, match=rf"tiny_llama_q4\.pte: {name} is no constant"):
        loaded(device, **{name: (value,)})


@pytest.mark.parametrize("value", [1.5, "abc", None, -5, True])
def test_a_context_that_is_no_number(device: Device, value: Any) -> None:
    with pteron.load(MODELS / "tiny_llama_q4.pte", device=device) as program:
        file = program.file
    name = "get_max_context_len"
    assert stated_context(file) == 64
    (record,) = (method for method in file.methods if method.name == name)
    odd = replace(record, values=(value,), outputs=(0,))
    methods = tuple(odd if method is record else method for method in file.methods)
    with pytest.raises(FormatError, match=rf"tiny_llama_q4\.pte: {name} is no constant number of tokens"):
        stated_context(replace(file, methods=methods))
