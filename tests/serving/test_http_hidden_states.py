"""Embeddings of programs with a KV cache that give hidden states, compared with float64 PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byte_tokenizer import ByteTokenizer
from http_fixtures import NAME, Running, error, openai_client, running

from pteron import FormatError, UnsupportedError
from pteron.embeddings.encoder import Embedder
from pteron.embeddings.hidden_states import HiddenStates, generates_text, hidden_states, open_served
from pteron.llm import LLM
from pteron.llm.model import LanguageModel
from pteron.serving import Engine
from pteron.speech import Transcriber

pytest.importorskip("executorch")
import hidden_fixtures as fixtures

pytestmark = pytest.mark.export
TEXTS = ["b", "sevenXX", "eightXXX", "a text of 23 characters", "p" * 60 + "q", "b"]
BESIDE = ("second output", "second method")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("hidden")
    return {kind: fixtures.write_states(kind, made / kind.replace(" ", "-")) for kind in fixtures.KINDS}


def named(folder: Path, pooling: str | None) -> Path:
    manifest = folder / "pteron.json"
    manifest.unlink(missing_ok=True)
    if pooling is not None:
        manifest.write_text(json.dumps({"pooling": pooling}))
    return folder


@contextmanager
def served(path: Path) -> Iterator[tuple[Running, LLM | Embedder]]:
    model = open_served(path)
    assert not isinstance(model, Transcriber)
    with model:
        if isinstance(model, LLM):
            with Engine(model) as engine, running(engine) as server:
                yield server, model
        else:
            with running(model) as server:
                yield server, model


def expected(ids: list[int], pooling: str) -> np.ndarray[Any, Any]:
    states = fixtures.states(ids)
    vector = states[-1] if pooling == "last" else states.mean(0)
    length: np.ndarray[Any, Any] = vector / np.linalg.norm(vector)
    return length


def poison(model: LanguageModel) -> None:
    """Make every row of the caches NaN."""
    assert model.delegate is not None
    assert model.row_layout is not None
    rows = {id: np.full(rows.bytes * model.context, 0xFF, np.uint8) for id, rows in model.row_layout.items()}
    model.delegate.states.write(rows)


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        (kind, pooling)
        for kind in fixtures.KINDS
        for pooling in ("last", "mean")
        if (kind, pooling) != ("last", "mean")
    ],
)
def test_vectors_are_those_of_pytorch(folders: dict[str, Path], kind: str, pooling: str) -> None:
    with served(named(folders[kind], pooling)) as (server, model):
        assert isinstance(model, LLM) is (kind in BESIDE)
        embedder = server.loaded.embedder
        assert isinstance(embedder, HiddenStates)
        client = openai_client(server)
        poison(embedder._sequence)
        found = client.embeddings.create(model=NAME, input=TEXTS, encoding_format="float")
        for text, item in zip(TEXTS, found.data, strict=True):
            ids = embedder.encode(text)
            assert len(ids) == len(text)
            np.testing.assert_allclose(item.embedding, expected(ids, pooling), atol=1e-5)
        assert found.data[0].embedding == found.data[-1].embedding  # whatever was read between
        assert found.usage.prompt_tokens == found.usage.total_tokens == sum(map(len, TEXTS))
        as_text = client.embeddings.create(model=NAME, input=TEXTS[3])  # the client requests base64
        np.testing.assert_allclose(as_text.data[0].embedding, found.data[3].embedding, rtol=1e-6)
        for wrong in ("x" * (fixtures.CONTEXT + 1), "", [96]):
            asked = {"model": NAME, "input": wrong}
            assert error(server.http.post("/v1/embeddings", json=asked), 400)["param"] == "input"
        chat = server.http.post("/v1/completions", json={"model": NAME, "prompt": "a", "max_tokens": 2})
        if kind in BESIDE:
            assert chat.status_code == 200
        else:
            assert error(chat, 400)["code"] == "no_text"


def test_a_failed_text_does_not_affect_the_next(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_served(named(folders["all"], "mean")) as model:
        assert isinstance(model, HiddenStates)
        ids = model.encode(TEXTS[3])
        before = model.embed(ids)
        read, calls = model._read, []

        def failing(*given: Any) -> Any:
            calls.append(given)
            found = read(*given)
            if len(calls) == 2:
                raise RuntimeError("injected")
            return found

        monkeypatch.setattr(model, "_read", failing)
        with pytest.raises(RuntimeError):
            model.embed(model.encode("another text, of other characters"))
        np.testing.assert_array_equal(model.embed(ids), before)


def test_an_unknown_cache_layout_is_reset_before_each_text(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_served(named(folders["all"], "mean")) as model:
        assert isinstance(model, HiddenStates)
        poison(model._sequence)
        monkeypatch.setattr(model._sequence, "_layout", (None,))  # as of a program that keeps anything else
        reset, resets = model._sequence.method.reset, []

        def counted() -> None:
            resets.append("once")
            reset()

        monkeypatch.setattr(model._sequence.method, "reset", counted)
        for text in TEXTS[:4]:
            ids = model.encode(text)
            np.testing.assert_allclose(model.embed(ids), expected(ids, "mean"), atol=1e-5)
        assert len(resets) == 4  # not once for each chunk


@pytest.mark.long(every=2)
@pytest.mark.parametrize("kind", BESIDE)
def test_beside_answers(folders: dict[str, Path], kind: str) -> None:
    """Embeddings and answers that run at once do not change each other."""
    with served(named(folders[kind], "last")) as (server, _):
        asked = [
            {"model": NAME, "prompt": text, "max_tokens": 30, "temperature": 0.0, "seed": 1}
            for text in ("one", "twotwo", "three three", "four and four and four")
        ]

        def answer(body: dict[str, Any]) -> str:
            text: str = server.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
            return text

        def vectors() -> Any:
            response = server.http.post("/v1/embeddings", json={"model": NAME, "input": TEXTS})
            return [item["embedding"] for item in response.json()["data"]]

        alone, alone_vectors = [answer(body) for body in asked], vectors()
        with ThreadPoolExecutor(len(asked) + 3) as threads:
            answers = threads.map(answer, asked)
            found = [threads.submit(vectors) for _ in range(3)]
            assert list(answers) == alone
            assert [each.result() for each in found] == [alone_vectors] * 3


def test_which_programs_generate_text(folders: dict[str, Path], stories: LLM) -> None:
    assert generates_text(stories)
    assert hidden_states(stories) is None
    file = named(folders["all"], None) / "model.pte"
    with LLM(file) as model:  # 64 wide, 96 tokens, no tokenizer: undecidable
        assert generates_text(model)
    with LLM(file, ByteTokenizer()) as model:  # of 512
        assert not generates_text(model)
        with running(model) as server:
            found = server.http.post("/v1/embeddings", json={"model": NAME, "input": [5, 17, 3]}).json()
            np.testing.assert_allclose(found["data"][0]["embedding"], expected([5, 17, 3], "last"), atol=1e-5)


def test_unsupported_pooling(folders: dict[str, Path]) -> None:
    with pytest.raises(UnsupportedError, match="the state of the last token only"):
        open_served(named(folders["last"], "mean"))
    with pytest.raises(FormatError, match='pooling must be "last" or "mean", not \'middle\''):
        open_served(named(folders["all"], "middle"))


def test_special_tokens_of_the_tokenizer_are_used(folders: dict[str, Path], tmp_path: Path) -> None:
    """Qwen3-Embedding's tokenizer appends a token to each text, whose state is the vector."""
    import tokenizers

    folder = named(folders["all"], "last")
    reader = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    reader.post_processor = tokenizers.processors.TemplateProcessing("$A <|end|>", None, [("<|end|>", 0)])
    reader.save(str(tmp_path / "tokenizer.json"))
    with open_served(folder, str(tmp_path / "tokenizer.json")) as model:
        assert isinstance(model, HiddenStates)
        plain = model.encode("cat")
        assert plain[-1] == 0
        assert len(plain) == 4
        np.testing.assert_allclose(model.embed(plain), expected(plain, "last"), atol=1e-5)
        assert len(model.encode("<|end|>")) == 8  # what a user writes is text
