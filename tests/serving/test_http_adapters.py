"""LoRA adapters over HTTP: each is a model of its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from checkpoints import Golden
from http_fixtures import NAME, Running, error, events, running
from lora_files import ADAPTERS

from pteron.cli import build_parser
from pteron.errors import InputError
from pteron.llm import LLM
from pteron.llm.engine import Engine
from pteron.llm.export import export_llm
from pteron.serving.http import create_app

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder, golden = tmp_path_factory.mktemp("llama"), Golden.load("llama")
    program = export_llm(
        golden.write_folder(folder / "checkpoint"),
        folder / "model",
        quantize=None,
        embedding_bits=None,
        max_seq_len=16,
        max_context_len=64,
    )
    adapters = {files.name: files.write_peft(golden, folder / files.name) for files in ADAPTERS[:2]}
    with LLM(program, adapters=adapters) as llm:
        yield llm


@pytest.fixture(scope="module")
def server(llm: LLM) -> Iterator[Running]:
    # Not as an LLM: the tokenizer has more tokens than the tiny vocabulary, which means hidden states.
    with Engine(llm) as engine, running(engine) as server:
        yield server


def complete(server: Running, model: str, **options: Any) -> Any:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 6, "temperature": 0, **options}
    return server.http.post("/v1/completions", json=body)


def test_adapters_are_models(server: Running) -> None:
    cards = server.http.get("/v1/models").json()["data"]
    assert [(card["id"], card.get("parent")) for card in cards] == [
        (NAME, None),
        ("attention", NAME),
        ("all", NAME),
    ]
    assert server.http.get("/v1/models/all").json()["parent"] == NAME
    found = error(complete(server, "sql"), 404)
    assert found["message"] == f"there is no model 'sql'; this server has '{NAME}', 'attention', 'all'"


def test_the_model_of_a_request_chooses_the_adapter(server: Running, llm: LLM) -> None:
    names = (NAME, "attention", "all")
    expected = {name: llm(PROMPT, max_new_tokens=6, adapter=name if name != NAME else None) for name in names}
    assert len(set(expected.values())) == 3
    with ThreadPoolExecutor(6) as pool:
        responses = list(pool.map(lambda name: complete(server, name), names * 2))
    for name, response in zip(names * 2, responses, strict=True):
        body = response.json()
        assert (body["model"], body["choices"][0]["text"]) == (name, expected[name])
        assert server.logged(response)["model"] == name
    chunks = events(complete(server, "all", stream=True))
    assert {chunk["model"] for chunk in chunks} == {"all"}


def test_names_must_differ(server: Running) -> None:
    with pytest.raises(InputError, match="two models have the name 'all'"):
        create_app(server.engine, name="x", aliases=["all"])


def test_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    parse = build_parser(["serve"]).parse_args
    arguments = parse(["serve", "m", "--lora", "a=x=y", "--lora", "b=z"])
    assert arguments.lora == [("a", "x=y"), ("b", "z")]
    with pytest.raises(SystemExit):
        parse(["serve", "m", "--lora", "folder"])
    assert "expected NAME=PATH" in capsys.readouterr().err
