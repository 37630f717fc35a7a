"""Several models in one server: loaded at the first request, unloaded when idle or when memory is short."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from http_fixtures import CHAT, TEXT, Running, error, running, until
from scripted import Script, ScriptedEngine

from pteron import InputError, OutOfMemory
from pteron.cli import main
from pteron.llm import LLM
from pteron.serving import Engine
from pteron.serving.http import create_app
from pteron.serving.http.models import ModelSource


class Shelf:
    """Models with scripted answers, and what was loaded and unloaded; at most `room` at a time."""

    def __init__(self, stories: LLM, room: int = 9) -> None:
        self.loaded: list[str] = []
        self.events: list[str] = []
        self.engines: dict[str, ScriptedEngine] = {}
        self._stories, self._room = stories, room

    def source(self, name: str, *aliases: str) -> ModelSource:
        @contextmanager
        def opened() -> Iterator[Engine]:
            if len(self.loaded) >= self._room:
                raise OutOfMemory("no room")
            self.loaded.append(name)
            self.events.append(f"+{name}")
            self.engines[name] = ScriptedEngine(self._stories, lambda _: Script([f"I am {name}."]))
            yield self.engines[name]
            self.loaded.remove(name)
            self.events.append(f"-{name}")

        return ModelSource((name, *aliases), opened)


def ask(server: Running, model: str) -> str:
    response = server.http.post("/v1/chat/completions", json=CHAT | {"model": model})
    assert response.status_code == 200, response.text
    assert response.json()["model"] == model
    return str(response.json()["choices"][0]["message"]["content"])


def test_models_are_loaded_at_the_first_request(stories: LLM) -> None:
    shelf = Shelf(stories)
    with running([shelf.source("a", "first"), shelf.source("b")], name="") as server:
        names = [card["id"] for card in server.http.get("/v1/models").json()["data"]]
        assert names == ["a", "first", "b"]
        assert server.http.get("/health").json() == {"status": "ok"}
        assert server.http.get("/ready").json() == {"status": "ready"}
        assert shelf.events == []
        assert ask(server, "b") == "I am b."
        assert shelf.events == ["+b"]
        with ThreadPoolExecutor(4) as threads:
            assert set(threads.map(lambda _: ask(server, "a"), range(4))) == {"I am a."}
        assert shelf.events == ["+b", "+a"]
        body = CHAT | {"model": "first"}
        assert server.http.post("/v1/chat/completions", json=body).json()["model"] == "a"
        found = error(server.http.post("/v1/completions", json=TEXT | {"model": "c"}), 404)
        assert found["message"] == "there is no model 'c'; this server has 'a', 'first', 'b'"
        assert error(server.http.post("/tokenize", json={"prompt": "a"}), 400)["param"] == "model"
        tags = server.http.get("/api/tags").json()["models"]
        assert [model["name"] for model in tags] == names
        assert server.http.get("/health").json()["running"] == 0
    assert sorted(shelf.events[2:]) == ["-a", "-b"]


def test_a_loaded_model_has_a_context(stories: LLM) -> None:
    shelf = Shelf(stories)
    with running([shelf.source("a"), shelf.source("b")], name="") as server:
        ask(server, "b")
        cards = server.http.get("/v1/models").json()["data"]
        assert [card.get("context_length") for card in cards] == [None, 256]
        assert [card["input_modalities"] for card in cards] == [["text"], ["text"]]
        assert cards[0]["created"] == cards[1]["created"]


def test_an_idle_model_is_unloaded(stories: LLM) -> None:
    shelf = Shelf(stories)
    with running([shelf.source("a"), shelf.source("b")], name="", keep_alive=0.1) as server:
        ask(server, "a")
        shelf.engines["a"].play = lambda _: Script([], hangs=True)
        with server.http.stream("POST", "/v1/completions", json=TEXT | {"model": "a", "stream": True}):
            ask(server, "b")
            until(lambda: shelf.events == ["+a", "+b", "-b"])  # `a` answers, so it stays
        until(lambda: shelf.loaded == [])
        assert ask(server, "a") == "I am a."


def test_memory_that_is_short(stories: LLM) -> None:
    shelf = Shelf(stories, room=1)
    with running([shelf.source("a"), shelf.source("b")], name="") as server:
        assert [ask(server, name) for name in "aba"] == ["I am a.", "I am b.", "I am a."]
        assert shelf.events == ["+a", "-a", "+b", "-b", "+a"]
        shelf.engines["a"].play = lambda _: Script([], hangs=True)
        with server.http.stream("POST", "/v1/completions", json=TEXT | {"model": "a", "stream": True}):
            response = server.http.post("/v1/completions", json=TEXT | {"model": "b"})
            assert error(response, 503)["code"] == "out_of_memory"


def test_names_are_unique(stories: LLM) -> None:
    shelf = Shelf(stories)
    with pytest.raises(InputError, match="two models have the same name"):
        create_app([shelf.source("a"), shelf.source("a")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["stories15m", "stories15m"], "two models have the same name"),
        (["stories15m", "other=stories15m", "--name", "x"], "--name is for one model"),
        (["stories15m", "--keep-alive", "5"], "--keep-alive needs several models"),
        (["stories15m", "other=no-such-model"], "no-such-model"),
    ],
)
def test_arguments(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", *options]) != 0
    assert message in capsys.readouterr().err
