"""Rerank and score: texts by their relevance to a query, with vectors or with a cross-encoder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from http_fixtures import NAME, Running, error, running
from letters import letters_mean, write_letters

import pteron
from pteron import DType, UnsupportedError, ValueSpec
from pteron.embeddings.encoder import Encoder, is_encoder
from pteron.embeddings.hidden_states import open_served
from pteron.llm import LLM
from pteron.llm.names.models import BUNDLED

TEXTS = ["dog", "a cat", "cats", "tree"]


class Pairs(Encoder):
    """A cross-encoder of letters: the logit is the number of letters that both texts have, less two."""

    scores_pairs = True

    def __init__(self) -> None:
        self.program = SimpleNamespace(device=SimpleNamespace(is_usable=True))  # type: ignore[assignment]
        spec = ValueSpec("tensor", DType.I64, (1, 16), (False, True))
        self.method = _Method([spec] * 3)  # type: ignore[assignment]
        self._encode = lambda text: [ord(letter) for letter in text]
        self._encode_pair = lambda a, b: (self._encode(a + b), [0] * len(a) + [1] * len(b))
        self.vocabulary, self.pooling = 128, "mean"
        self._lock = threading.RLock()


class _Method:
    def __init__(self, inputs: list[ValueSpec]) -> None:
        self.inputs = inputs

    def __call__(self, ids: Any, mask: Any, types: Any) -> tuple[Any]:
        assert mask.tolist() == [[1] * ids.shape[1]]
        a, b = (set(ids[types == kind].tolist()) for kind in (0, 1))
        return (np.array([[len(a & b) - 2.0]], np.float32),)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("letters")
    write_letters(folder)
    with open_served(folder) as encoder, running(encoder) as server:
        yield server


@pytest.fixture(scope="module")
def pairs() -> Iterator[Running]:
    with running(Pairs()) as server:
        yield server


def cosines(query: str) -> list[float]:
    return [float(letters_mean(query) @ letters_mean(text)) for text in TEXTS]


def sigmoid(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


@pytest.mark.parametrize("route", ["/v1/rerank", "/rerank", "/v2/rerank"])
def test_rerank_by_vectors(letters: Running, route: str) -> None:
    documents = [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]
    response = letters.http.post(route, json={"model": NAME, "query": "cat", "documents": documents})
    found = response.json()
    order = np.argsort(cosines("cat"))[::-1].tolist()
    assert [result["index"] for result in found["results"]] == order
    assert [result["document"]["text"] for result in found["results"]] == [TEXTS[at] for at in order]
    scores = [result["relevance_score"] for result in found["results"]]
    np.testing.assert_allclose(scores, sorted(cosines("cat"), reverse=True), atol=1e-6)
    assert found["usage"]["total_tokens"] == len("cat") + sum(map(len, TEXTS))
    line = letters.logged(response)
    assert (line["prompt_tokens"], line["choices"]) == (found["usage"]["prompt_tokens"], len(TEXTS))


def test_the_best_without_their_texts(pairs: Running) -> None:
    body: dict[str, Any] = {"query": "cat", "documents": TEXTS, "top_n": 2, "return_documents": False}
    for count, shown in ((0, 4), (1, 1), (9, 4)):
        all_or_few = pairs.http.post("/v1/rerank", json=body | {"top_n": count}).json()["results"]
        assert len(all_or_few) == shown
    found = pairs.http.post("/v1/rerank", json=body).json()["results"]  # the only model needs no name
    assert found == [
        {"index": 1, "relevance_score": pytest.approx(sigmoid(1))},
        {"index": 2, "relevance_score": pytest.approx(sigmoid(1))},
    ]


@pytest.mark.parametrize("route", ["/score", "/v1/score"])
def test_score(letters: Running, pairs: Running, route: str) -> None:
    body = {"model": NAME, "text_1": "cat", "text_2": TEXTS}
    found = letters.http.post(route, json=body).json()
    assert [item["index"] for item in found["data"]] == [0, 1, 2, 3]
    np.testing.assert_allclose([item["score"] for item in found["data"]], cosines("cat"), atol=1e-6)
    found = pairs.http.post(route, json=body | {"text_1": ["dog", "dog", "cats", "reed"]}).json()
    expected = [sigmoid(shared - 2) for shared in (3, 0, 4, 2)]
    np.testing.assert_allclose([item["score"] for item in found["data"]], expected, atol=1e-6)
    assert found["usage"]["prompt_tokens"] == len("dogdogcatsreed") + sum(map(len, TEXTS))


def test_the_pooling_of_a_folder(tmp_path: Path) -> None:
    """States of the last token, or the mean of all; what a tokenizer would cut stays."""
    write_letters(tmp_path)
    file = tmp_path / "tokenizer.json"
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation": cut}))
    (tmp_path / "pteron.json").write_text('{"pooling": "last"}')
    with Encoder(tmp_path) as encoder:
        assert (encoder.vocabulary, len(encoder.encode("tree"))) == (128, 4)
        np.testing.assert_allclose(encoder.embed(encoder.encode("tree")), letters_mean("e"), atol=1e-6)
    with pytest.raises(UnsupportedError, match="adapters cannot be added"):  # said of a language model
        open_served(tmp_path, adapters={"sql": str(tmp_path)})


def test_a_pair_of_vectors(letters: Running) -> None:
    found = letters.http.post("/score", json={"text_1": ["cat", "dog"], "text_2": ["cat", "cat"]}).json()
    expected = [1.0, float(letters_mean("dog") @ letters_mean("cat"))]
    np.testing.assert_allclose([item["score"] for item in found["data"]], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ("/score", {"text_1": "a", "text_2": []}, "text_2"),
        ("/score", {"text_1": "a", "text_2": "x" * 17}, "text_2"),
        ("/score", {"text_1": "a", "text_2": ["b"] * 257}, "text_2"),
        ("/v1/rerank", {"documents": ["b"]}, "query"),
        ("/v1/rerank", {"query": 5, "documents": ["b"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
        ("/v1/rerank", {"query": "a", "documents": [{"picture": "b"}]}, "documents"),
        ("/v1/embeddings", {"model": NAME, "input": "a"}, "model"),
    ],
    ids=str,
)
def test_bad_requests(pairs: Running, route: str, body: dict[str, Any], param: str) -> None:
    assert error(pairs.http.post(route, json=body), 400)["param"] == param


def test_a_model_of_text_scores_nothing(stories: LLM) -> None:
    with running(stories) as server:
        for route, body in (("/score", {"text_1": "a", "text_2": "b"}),
                            ("/v1/rerank", {"query": "a", "documents": ["b"]})):  # fmt: skip
            found = error(server.http.post(route, json=body), 400)
            assert found["code"] == "no_embeddings"
            assert "gives no hidden states" in found["message"]


def test_litellm(letters: Running) -> None:
    litellm = pytest.importorskip("litellm")
    found = litellm.rerank(
        model=f"hosted_vllm/{NAME}", query="cat", documents=TEXTS, api_base=letters.address, top_n=1
    )
    assert found.results[0]["index"] == int(np.argmax(cosines("cat")))


@pytest.mark.long
@pytest.mark.export
def test_a_program_that_scores(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tokenizers = pytest.importorskip("tokenizers")

    class Scorer(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch is untyped
        def __init__(self) -> None:
            super().__init__()
            self.words, self.kinds = torch.nn.Embedding(11, 13), torch.nn.Embedding(2, 13)
            self.last = torch.nn.Linear(13, 1)

        def forward(self, tokens: Any, mask: Any, types: Any) -> Any:
            states = torch.tanh(self.words(tokens) * self.kinds(types)) * mask[..., None]
            return self.last(states.sum(1))

    torch.manual_seed(0)
    model = Scorer().eval()
    example = tuple(torch.ones(1, 7, dtype=torch.long) for _ in range(3))
    pteron.compile(torch.export.export(model, example), use_cache=False).save(tmp_path / "model.pte")
    with pytest.raises(UnsupportedError, match=r"scores pairs of texts, which needs a tokenizer\.json"):
        Encoder(tmp_path, BUNDLED["stories15m"])
    words = {word: number for number, word in enumerate(["[CLS]", "[SEP]", "[UNK]", "cat", "dog", "the"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with open_served(tmp_path) as encoder:
        assert isinstance(encoder, Encoder)
        assert encoder.scores_pairs
        assert is_encoder(encoder.method.inputs, encoder.method.outputs)
        ids, types = [0, 5, 3, 1, 4, 1], [0, 0, 0, 0, 1, 1]
        rows = [[*row, 0] for row in (ids, [1] * 6, types)]
        with torch.no_grad():
            expected = torch.sigmoid(model.double()(*(torch.tensor([row]) for row in rows)))
        found, tokens = encoder.score("the cat", "dog")
        assert found == pytest.approx(float(expected), abs=1e-6)
        assert tokens == 6
