"""Embeddings: an encoder's program behind HTTP, its vectors as PyTorch has them."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from http_fixtures import NAME, PATIENCE, Running, error, openai_client, running, until
from letters import letters_mean, letters_table

import pteron
from pteron import DType, UnsupportedError, ValueSpec
from pteron.embeddings.encoder import Encoder, is_encoder
from pteron.embeddings.hidden_states import open_served
from pteron.llm.names.models import BUNDLED
from pteron.serving.http import Limits
from pteron.serving.http.models import ModelSource

WIDTH, TOKENS_MAX = 24, 37


def spec(dtype: DType, *shape: int, free: bool = False) -> ValueSpec:
    return ValueSpec("tensor", dtype, shape, tuple(free and size > 1 for size in shape))


class Letters(Encoder):
    """An encoder of letters, whose states are rows of a table: on the host."""

    def __init__(self, *inputs: ValueSpec) -> None:
        self.table = letters_table()
        self.calls: list[tuple[Any, ...]] = []
        self.program = SimpleNamespace(device=SimpleNamespace(is_usable=True))  # type: ignore[assignment]
        self.method = _Called(self, inputs)  # type: ignore[assignment]
        self._encode = lambda text: [ord(letter) for letter in text]
        self.vocabulary, self.pooling = 128, "mean"
        self._lock = threading.RLock()

    def run(self, *given: Any) -> tuple[Any, ...]:
        self.calls.append(given)
        return (self.table[given[0]],)


class _Called:
    def __init__(self, encoder: Letters, inputs: tuple[ValueSpec, ...]) -> None:
        self._encoder = encoder
        self.inputs = inputs

    def __call__(self, *given: Any) -> tuple[Any, ...]:
        return self._encoder.run(*given)


@pytest.fixture
def letters() -> Letters:
    return Letters(spec(DType.I64, 1, 16, free=True))


@pytest.fixture
def server(letters: Letters) -> Iterator[Running]:
    with running(letters) as made:
        yield made


def test_clients_that_leave_free_the_worker(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread works for all requests of a model; the texts of clients that left are not embedded."""
    may_go_on, embed = threading.Event(), letters.run

    def run(*given: Any) -> tuple[Any, ...]:
        assert may_go_on.wait(PATIENCE)
        return embed(*given)

    monkeypatch.setattr(letters, "run", run)
    with running(letters) as server:
        for _ in range(4):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(
                    f"{server.address}/v1/embeddings",
                    json={"model": NAME, "input": ["cat", "dog"]},
                    timeout=httpx.Timeout(PATIENCE, read=0.3),
                )
        may_go_on.set()
        until(lambda: sum(line.get("status") == 499 for line in server.log()) == 4)
        until(lambda: server.loaded.worker.borrowed_tokens == 0)
        assert len(letters.calls) == 1
        assert server.http.post("/v1/embeddings", json={"model": NAME, "input": "cat"}).status_code == 200


def test_models_do_not_wait_for_each_other(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on, is_running, embed = threading.Event(), threading.Event(), letters.run

    def run(*given: Any) -> tuple[Any, ...]:
        is_running.set()
        assert may_go_on.wait(PATIENCE)
        return embed(*given)

    monkeypatch.setattr(letters, "run", run)
    other = Letters(spec(DType.I64, 1, 16, free=True))
    sources = [
        ModelSource(("slow",), lambda: nullcontext(letters)),
        ModelSource(("b",), lambda: nullcontext(other)),
    ]
    with running(sources, name="") as server, ThreadPoolExecutor(1) as threads:

        def ask(model: str) -> int:
            body = {"model": model, "input": "cat"}
            return httpx.post(f"{server.address}/v1/embeddings", json=body, timeout=PATIENCE).status_code

        waiting = threads.submit(ask, "slow")
        try:
            assert is_running.wait(PATIENCE)
            assert ask("b") == 200
        finally:
            may_go_on.set()
        assert waiting.result() == 200


def test_vectors_by_the_official_client(server: Running) -> None:
    client = openai_client(server)
    texts = ["cat", "dog", "a longer text"]
    for form in ("float", "base64"):
        found = client.embeddings.create(model=NAME, input=texts, encoding_format=form)
        for text, item in zip(texts, found.data, strict=True):
            vector: Any = item.embedding
            if form == "base64":
                vector = np.frombuffer(base64.b64decode(vector), "<f4")
            np.testing.assert_allclose(vector, letters_mean(text), atol=1e-6)
        assert [item.index for item in found.data] == [0, 1, 2]
        assert found.usage.prompt_tokens == found.usage.total_tokens == sum(map(len, texts))
    one = client.embeddings.create(model=NAME, input="cat").data[0].embedding  # the client requests base64
    np.testing.assert_allclose(one, letters_mean("cat"), atol=1e-6)
    ids = client.embeddings.create(model=NAME, input=[ord("c"), ord("a"), ord("t")]).data[0].embedding
    assert ids == one


def test_vectors_by_the_client_of_ollama(server: Running) -> None:
    ollama = pytest.importorskip("ollama")
    client = ollama.Client(host=server.address)
    found = client.embed(model=f"{NAME}:latest", input=["ab", "b"])
    expected = openai_client(server).embeddings.create(model=NAME, input=["ab", "b"], encoding_format="float")
    assert [list(each) for each in found.embeddings] == [each.embedding for each in expected.data]
    assert (found.model, found.prompt_eval_count) == (NAME, expected.usage.prompt_tokens)


def test_invalid_inputs_of_embeddings(server: Running) -> None:
    wrong: tuple[Any, ...] = ("x" * 17, "", [], ["a"] * 999, [128], [-1])
    for change in (*({"input": each} for each in wrong), {"dimensions": 3}):
        asked = {"model": NAME, "input": "cat"} | change
        assert error(server.http.post("/v1/embeddings", json=asked), 400)["param"] in ("input", "dimensions")
    asked = {"model": NAME, "input": "a", "dimensions": 5}
    assert server.http.post("/v1/embeddings", json=asked).status_code == 200


def test_a_text_without_a_direction(letters: Letters) -> None:
    """Its states are zeros, which no length can make one."""
    letters.table[:] = 0
    assert letters.embed([1, 2]).tolist() == [0] * 5


def test_texts_are_counted_in_the_log(server: Running) -> None:
    line = server.logged(server.http.post("/v1/embeddings", json={"model": NAME, "input": ["ab", "c", "d"]}))
    assert (line["choices"], line["prompt_tokens"], line["new_tokens"]) == (3, 4, 0)


def test_a_text_that_is_too_long_is_not_encoded_whole(server: Running, letters: Letters) -> None:
    encode, sizes = letters._encode, list[int]()

    def counted(text: str) -> list[int]:
        sizes.append(len(text))
        return encode(text)

    letters._encode = counted
    body = {"model": NAME, "input": "x" * 1_000_000}
    assert "from 1 to 16 tokens" in error(server.http.post("/v1/embeddings", json=body), 400)["message"]
    assert sizes == [1 << 14]


def test_other_dimensions_are_refused_after_the_first_text(server: Running, letters: Letters) -> None:
    asked = {"model": NAME, "input": ["a", "b", "c"], "dimensions": 3}
    assert error(server.http.post("/v1/embeddings", json=asked), 400)["param"] == "dimensions"
    assert len(letters.calls) == 1


def test_texts_that_take_too_long(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    run = letters.run

    def slow(*given: Any) -> tuple[Any, ...]:
        time.sleep(0.1)
        return run(*given)

    monkeypatch.setattr(letters, "run", slow)
    with running(letters, limits=Limits(seconds=0.05)) as server:
        response = server.http.post("/v1/embeddings", json={"model": NAME, "input": ["a", "b", "c"]})
        assert error(response, 503)["code"] == "timeout"
    assert len(letters.calls) < 3


def test_an_encoder_generates_no_text(server: Running) -> None:
    chat = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}]}
    assert "embeddings only" in error(server.http.post("/v1/chat/completions", json=chat), 400)["message"]
    asked = {"model": NAME, "prompt": "Hi"}
    assert "embeddings only" in error(server.http.post("/v1/completions", json=asked), 400)["message"]
    assert server.http.get("/health").json() == {"status": "ok"}
    assert b"pteron_http_requests_total" in server.http.get("/metrics").content


def test_a_fixed_length_is_filled_up_and_masked() -> None:
    letters = Letters(spec(DType.I64, 1, 16), spec(DType.I64, 1, 16))
    vector = letters.embed(letters.encode("cat"))
    ((tokens, mask),) = letters.calls
    assert tokens.shape == mask.shape == (1, 16)
    assert mask.tolist() == [[1] * 3 + [0] * 13]
    np.testing.assert_allclose(vector, letters_mean("cat"), atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ([spec(DType.I64, 16, free=True)], [spec(DType.F32, 1, 5)], True),
        ([spec(DType.I32, 1, 16, free=True)], [spec(DType.F32, 1, 16, 5)], True),
        ([spec(DType.I64, 1, 16), spec(DType.I64, 1, 16)], [spec(DType.F32, 5)], True),
        ([spec(DType.I64, 1, 16)], [spec(DType.F32, 1, 5)], False),  # where would a text end?
        ([spec(DType.F32, 1, 16, free=True)], [spec(DType.F32, 1, 5)], False),
        ([spec(DType.I64, 3, 16, free=True)], [spec(DType.F32, 3, 5)], False),
        ([spec(DType.I64, 1, 16, free=True), spec(DType.I64, 1)], [spec(DType.F32, 1, 5)], False),
        ([spec(DType.I64, 1, 16, free=True)], [spec(DType.I64, 1, 5)], False),
        ([spec(DType.I64, 1, 16, free=True)], [], False),
        ([], [spec(DType.F32, 1, 5)], False),
    ],
    ids=str,
)
def test_what_an_encoder_is(inputs: list[ValueSpec], outputs: list[ValueSpec], expected: bool) -> None:
    assert is_encoder(inputs, outputs) is expected


def test_a_language_model_is_not_an_encoder() -> None:
    with pytest.raises(UnsupportedError, match="forward is not an encoder"):
        Encoder(BUNDLED["stories15m"])


@pytest.mark.long
@pytest.mark.export
def test_a_program_of_minilm(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tokenizers = pytest.importorskip("tokenizers")
    from models import minilm

    torch.manual_seed(0)
    sizes = {"vocabulary": 101, "positions": 64, "width": WIDTH, "heads": 3, "wide": 40, "layers": 2}
    model = minilm.MiniLM(**sizes).eval()
    length = torch.export.Dim("length", min=2, max=TOKENS_MAX)
    example = (torch.zeros(TOKENS_MAX, dtype=torch.long),)
    exported = torch.export.export(model, example, dynamic_shapes={"tokens": {0: length}}, strict=True)
    pteron.compile(exported, use_cache=False).save(tmp_path / "model.pte")
    words = {
        word: number for number, word in enumerate(["[CLS]", "[SEP]", "[UNK]", "cat", "dog", "the", "sat"])
    }
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["the cat sat", "dog", "the dog and the cat sat"]
    with open_served(tmp_path) as encoder, running(encoder) as server:  # as `pteron serve` does
        assert isinstance(encoder, Encoder)
        assert encoder.encode("the cat sat") == [0, 5, 3, 6, 1]
        client = openai_client(server)
        found = client.embeddings.create(model=NAME, input=texts)
        for text, item in zip(texts, found.data, strict=True):
            with torch.no_grad():
                expected = model(torch.tensor(encoder.encode(text)))[0]
            np.testing.assert_allclose(item.embedding, expected.numpy(), atol=1e-4)
