"""SmolLM2-135M-Instruct, and stories15M in float32, against eager PyTorch. Heavy: minutes, and a download.

scripts/test --heavy tests/llm/test_smollm2.py
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pteron.llm import LLM
from pteron.llm.export import export_llm
from pteron.llm.names.models import fetch
from pteron.tools.perplexity import perplexity

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.heavy


def read_golden(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / f"tests/fixtures/llm/{name}.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return read_golden("smollm2")


@pytest.fixture(scope="module")
def smollm2() -> Iterator[LLM]:
    with LLM(fetch("smollm2")) as made:
        yield made


def test_it_knows_the_capital_of_france(smollm2: LLM) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    answer = "".join(piece.text for piece in smollm2.chat(question, max_new_tokens=20))
    assert "Paris" in answer
    assert smollm2.statistics.finish_reason == "stop"


def test_greedy_equals_eager_quantised(smollm2: LLM, golden: dict[str, Any]) -> None:
    pieces = smollm2.generate(golden["prompt_ids"], max_new_tokens=64, stop_ids=())
    assert [piece.token for piece in pieces] == golden["quantized"]["greedy"]


def test_perplexity_agrees_with_eager(smollm2: LLM, golden: dict[str, Any]) -> None:
    smollm2.reset()
    found = perplexity(smollm2.model, golden["text_ids"])
    smollm2.reset()
    assert found == pytest.approx(golden["quantized"]["perplexity"], rel=0.005)
    assert found < 1.03 * golden["float32"]["perplexity"]  # quantising costs it nothing that shows


def test_a_long_conversation_equals_eager(smollm2: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,800 tokens of a conversation, to the end: the logits of eager PyTorch, and its tokens."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # it compares with the same reference
    reference = import_module("torch_reference")
    model, graph = smollm2.model, smollm2.program.graphs("forward")[0]
    eager = reference.TorchReference(graph, torch.float32, "cpu")

    def expected(ids: list[int], position: int) -> np.ndarray[Any, Any]:
        logits = eager(torch.tensor([ids]), position).reshape(-1)[-model.vocabulary :]
        return np.asarray(logits.numpy())

    ids = conversation(smollm2, 1792)
    smollm2.reset()
    for position in range(0, len(ids), 128):
        chunk = ids[position : position + 128]
        logits, wanted = model.prefill(chunk), expected(chunk, position)
        np.testing.assert_allclose(logits, wanted, atol=1e-3)
        assert logits.argmax() == wanted.argmax()
    for _ in range(8):
        token = int(wanted.argmax())
        ids.append(token)
        logits, wanted = model.decode_one_token(token), expected([token], len(ids) - 1)
        np.testing.assert_allclose(logits, wanted, atol=1e-3)
        assert logits.argmax() == wanted.argmax()
    assert len(ids) == 1800
    # The loop on the GPU goes on from there as the steps did.
    drawn = [piece.token for piece in smollm2.generate(ids[:1792], max_new_tokens=8, stop_ids=())]
    assert drawn == ids[1792:]


def conversation(llm: LLM, count: int) -> list[int]:
    """The first tokens of a talk about this project's own pages."""
    pages = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    turns = [f"user: Tell me of {page.stem}.\nassistant: {page.read_text('utf-8')}" for page in pages]
    ids = llm.tokenizer.encode("\n".join(turns), bos=llm.tokenizer.adds_bos)
    assert len(ids) >= count
    return ids[:count]


def test_stories_in_float32(tmp_path: Path) -> None:
    golden = read_golden("stories15m")
    fetch_weights = runpy.run_path(str(ROOT / "examples/stories15m/make.py"))["fetch"]
    folder = export_llm(fetch_weights(tmp_path), tmp_path / "fp32", quantize=None, embedding_bits=None)
    with LLM(folder) as stories:
        pieces = stories.generate(golden["prompt_ids"], max_new_tokens=200, stop_ids=())
        assert [piece.token for piece in pieces] == golden["float32"]["greedy"]
        stories.reset()
        found = perplexity(stories.model, golden["text_ids"])
    assert found == pytest.approx(golden["float32"]["perplexity"], rel=0.005)
