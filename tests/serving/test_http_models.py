"""Several models in one server: loaded at the first request, unloaded when idle or when memory is short."""

from __future__ import annotations

import asyncio
import platform
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from http_fixtures import CHAT, PATIENCE, TEXT, Running, error, running, until
from scripted import Script, ScriptedEngine, ScriptedModel

from pteron import InputError, OutOfMemory
from pteron.cli import build_parser, main
from pteron.cli.served_models import expand_folders, find_models
from pteron.llm import LLM
from pteron.llm.names.models import BUNDLED
from pteron.serving import Engine
from pteron.serving.http import create_app
from pteron.serving.http.errors import ApiError
from pteron.serving.http.models import Models, ModelSource

HI = [{"role": "user", "content": "Hi"}]


class Shelf:
    """Models with scripted answers, and what was loaded and unloaded; at most `room` at a time."""

    def __init__(self, stories: LLM, room: int = 9) -> None:
        self.loaded: list[str] = []
        self.events: list[str] = []
        self.engines: dict[str, ScriptedEngine] = {}
        self._stories, self._room = stories, room

    def source(self, name: str, *aliases: str, adapters: tuple[str, ...] = ()) -> ModelSource:
        @contextmanager
        def opened() -> Iterator[Engine]:
            if len(self.loaded) >= self._room:
                raise OutOfMemory("no room")
            self.loaded.append(name)
            self.events.append(f"+{name}")
            llm: Any = self._stories
            if adapters:
                llm = ScriptedModel.like(self._stories, None)
                llm.model = SimpleNamespace(context=256, vocabulary=32000, adapters=adapters)
                llm.model.method = SimpleNamespace(outputs=[None])
            self.engines[name] = ScriptedEngine(llm, lambda _: Script(["I am ", f"{name}."]))
            yield self.engines[name]
            self.loaded.remove(name)
            self.events.append(f"-{name}")

        return ModelSource((name, *aliases), opened, adapters)


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


def test_readiness_of_several(stories: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is full only if each of its models is loaded and full."""
    monkeypatch.setattr(ScriptedEngine, "is_full", True)
    shelf = Shelf(stories)
    with running([shelf.source("a"), shelf.source("b")], name="") as server:
        for model, status in (("a", "ready"), ("b", "full")):
            ask(server, model)
            assert server.http.get("/ready").json()["status"] == status


def test_a_loaded_model_has_a_context(stories: LLM) -> None:
    shelf = Shelf(stories)
    with running([shelf.source("a"), shelf.source("b")], name="") as server:
        ask(server, "b")
        cards = server.http.get("/v1/models").json()["data"]
        assert [card.get("context_length") for card in cards] == [None, 256]
        assert [card.get("input_modalities") for card in cards] == [None, ["text"]]  # unknown before
        assert cards[0]["created"] == cards[1]["created"]


def test_adapters_and_metrics_of_several(stories: LLM) -> None:
    shelf = Shelf(stories)
    sources = [shelf.source("a", "first", adapters=("sql",)), shelf.source("b")]
    with running(sources, name="") as server:
        cards = {card["id"]: card for card in server.http.get("/v1/models").json()["data"]}
        assert list(cards) == ["a", "first", "sql", "b"]
        assert (cards["sql"]["parent"], "parent" in cards["first"]) == ("a", False)
        assert "context_length" not in cards["a"]
        response = server.http.post("/v1/completions", json=TEXT | {"model": "sql"})
        assert response.json()["model"] == "sql"
        assert server.logged(response)["model"] == "sql"
        assert shelf.engines["a"].requests[0].adapter == "sql"
        assert server.http.get("/v1/models/sql").json()["context_length"] == 256
        ask(server, "b")
        ask(server, "b")
        text = server.http.get("/metrics").text
        for line in (
            'pteron_engine_requests_total{model="a"} 1.0',
            'pteron_engine_requests_total{model="b"} 2.0',
            'pteron_requests_running{model="a"} 0.0',
            'pteron_time_to_first_token_seconds_count{model="b"} 2.0',
            'pteron_time_between_tokens_seconds_count{model="a"} 1.0',
        ):
            assert line in text
    with pytest.raises(InputError, match="two models have the name"):
        create_app([shelf.source("a", adapters=("b",)), shelf.source("b")])


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("/v1/chat/completions", {"messages": HI}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/messages", {"messages": HI, "max_tokens": 2}),
        ("/api/chat", {"messages": HI, "stream": False}),
        ("/api/generate", {"prompt": "Hi", "stream": False}),
        ("/api/generate", {"prompt": "Hi", "stream": False, "raw": True}),
    ],
    ids=str,
)
def test_every_api_chooses_the_model_and_its_adapter(
    route: str, fields: dict[str, Any], stories: LLM
) -> None:
    shelf = Shelf(stories)
    with running([shelf.source("a", adapters=("sql",)), shelf.source("b", "second")], name="") as server:
        for given, name, engine, adapter in (
            ("a", "a", "a", None),
            ("sql", "sql", "a", "sql"),
            ("second", "b", "b", None),
        ):
            response = server.http.post(route, json={"model": given, **fields})
            assert response.status_code == 200, response.text
            assert (response.json()["model"], f"I am {engine}." in response.text) == (name, True)
            assert shelf.engines[engine].requests[-1].adapter == adapter


def test_what_several_models_share(stories: LLM) -> None:
    """Stored responses, and answers that are cancelled when the server ends."""
    shelf = Shelf(stories)
    with running([shelf.source("a"), shelf.source("b", "second")], name="") as server:
        assert server.http.get("/api/ps").json()["models"] == []
        first = server.http.post("/v1/responses", json={"model": "a", "input": "x"}).json()
        body = {"model": "b", "input": "y", "previous_response_id": first["id"]}
        assert server.http.post("/v1/responses", json=body).status_code == 200
        assert server.http.get(f"/v1/responses/{first['id']}").json() == first
        a, b = server.app.state.server.models.loaded
        assert a.server is b.server  # images of one request at a time are read, whatever the model
        for engine in shelf.engines.values():
            engine.play = lambda _: Script(["x"], hangs=True)
        body = TEXT | {"stream": True}
        with server.http.stream("POST", "/v1/completions", json=body | {"model": "second"}) as response:
            server.app.state.server.cancel()
            assert "shutting_down" in response.read().decode()
        assert [each["name"] for each in server.http.get("/api/ps").json()["models"]] == ["a", "b"]


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


def test_a_loaded_model_answers_while_another_is_loaded(stories: LLM) -> None:
    shelf, may_load, is_loading = Shelf(stories), threading.Event(), threading.Event()
    slow = shelf.source("slow")

    @contextmanager
    def opened() -> Iterator[Any]:
        is_loading.set()
        assert may_load.wait(PATIENCE)
        with slow.open() as engine:
            yield engine

    with (
        running([shelf.source("a"), ModelSource(("slow",), opened)], name="") as server,
        ThreadPoolExecutor(1) as threads,
    ):
        ask(server, "a")
        waiting = threads.submit(ask, server, "slow")
        try:
            assert is_loading.wait(PATIENCE)
            assert ask(server, "a") == "I am a."
            assert not waiting.done()
        finally:
            may_load.set()
        assert waiting.result(PATIENCE) == "I am slow."


def test_a_model_in_use_is_not_unloaded() -> None:
    """A request comes while other models are being closed."""

    async def unload() -> None:
        is_closing, may_close = threading.Event(), threading.Event()

        @contextmanager
        def opened(waits: bool) -> Iterator[Any]:
            yield object()
            is_closing.set()
            assert not waits or may_close.wait(PATIENCE)

        sources = [
            ModelSource(("a",), lambda: opened(waits=True)),
            ModelSource(("b",), lambda: opened(waits=False)),
        ]
        models = Models[object](sources, lambda loaded, names: loaded, keep_alive=0)
        for name in ("a", "b"):
            (await models.open(name))[1].release()
        unloading = asyncio.ensure_future(models.unload_idle())
        await asyncio.to_thread(is_closing.wait, PATIENCE)
        opening = asyncio.ensure_future(models.open("b"))
        await asyncio.sleep(0.05)
        assert not opening.done()  # it is loaded again, after it has been closed
        may_close.set()
        loaded, model = await opening
        await asyncio.sleep(0.2)  # more than one look for idle models
        assert model.loaded is loaded
        unloading.cancel()
        model.release()
        await models.close()

    asyncio.run(unload())


def test_a_cancelled_request_leaves_a_loaded_model() -> None:
    """Its model is loaded to the end: for the next request, or to be unloaded."""
    events = list[str]()
    is_loading, may_load = threading.Event(), threading.Event()

    @contextmanager
    def opened() -> Iterator[Any]:
        events.append("+")
        is_loading.set()
        assert may_load.wait(PATIENCE)
        yield object()
        events.append("-")

    async def cancel(then_open: bool) -> None:
        models = Models[object]([ModelSource(("a",), opened)], lambda loaded, names: loaded, None)
        opening = asyncio.ensure_future(models.open("a"))
        await asyncio.to_thread(is_loading.wait, PATIENCE)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        threading.Timer(0.05, may_load.set).start()
        if then_open:
            loaded, model = await models.open("a")
            assert model.loaded is loaded
        await models.close()

    for then_open in (True, False):
        events.clear()
        is_loading.clear()
        may_load.clear()
        asyncio.run(cancel(then_open))
        assert events == ["+", "-"]


def test_no_model_is_loaded_while_the_server_ends() -> None:
    """Neither for a request that waits for another load, nor for a later one."""
    events = list[str]()
    is_loading, may_load = threading.Event(), threading.Event()

    @contextmanager
    def opened(name: str) -> Iterator[Any]:
        events.append(f"+{name}")
        is_loading.set()
        assert may_load.wait(PATIENCE)
        yield object()
        events.append(f"-{name}")

    async def end() -> None:
        sources = [ModelSource((name,), partial(opened, name)) for name in "ab"]
        models = Models[object](sources, lambda loaded, names: loaded, None)
        first = asyncio.ensure_future(models.open("a"))
        await asyncio.to_thread(is_loading.wait, PATIENCE)
        waiting = asyncio.ensure_future(models.open("b"))
        await asyncio.sleep(0.05)
        closing = asyncio.ensure_future(models.close())
        await asyncio.sleep(0.05)
        may_load.set()
        await asyncio.gather(first, waiting, closing, return_exceptions=True)
        for asked in (waiting, models.open("a")):
            with pytest.raises(ApiError, match="shutting down"):
                await asked
        assert models.served[1].users == 0

    asyncio.run(end())
    assert events == ["+a", "-a"]


def test_a_model_that_no_request_wants_any_more_is_not_loaded() -> None:
    events = list[str]()
    is_loading, may_load = threading.Event(), threading.Event()

    @contextmanager
    def opened(name: str) -> Iterator[Any]:
        events.append(name)
        is_loading.set()
        assert may_load.wait(PATIENCE)
        yield object()

    async def cancel() -> None:
        sources = [ModelSource((name,), partial(opened, name)) for name in "abc"]
        models = Models[object](sources, lambda loaded, names: loaded, None)
        opening = [asyncio.ensure_future(models.open(name)) for name in "abc"]
        await asyncio.to_thread(is_loading.wait, PATIENCE)
        for each in opening[:2]:
            each.cancel()
        await asyncio.wait(opening[:2])
        may_load.set()
        await opening[2]
        assert events == ["a", "c"]  # the first was being loaded
        await models.close()

    asyncio.run(cancel())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries return memory in other ways")
def test_the_memory_of_an_unloaded_model_comes_back() -> None:
    """Also what only the garbage collector finds, and what is free below a block in use."""
    kept = list[bytearray]()

    @contextmanager
    def opened() -> Iterator[Any]:
        blocks: list[Any] = [bytearray(100_000) for _ in range(400)]  # too small for mappings of their own
        blocks.append(blocks)
        kept.append(bytearray(100_000))
        yield object()

    def memory() -> int:
        return int(Path("/proc/self/status").read_text("utf-8").split("RssAnon:")[1].split()[0]) << 10

    async def unload() -> None:
        models = Models[object]([ModelSource(("a",), opened)], lambda loaded, names: loaded, keep_alive=0)
        (await models.open("a"))[1].release()
        loaded = memory()
        unloading = asyncio.ensure_future(models.unload_idle())
        while models.loaded or loaded - memory() < 20_000_000:
            await asyncio.sleep(0.02)
        unloading.cancel()

    asyncio.run(asyncio.wait_for(unload(), PATIENCE))


def test_a_model_that_cannot_be_served_is_closed() -> None:
    events: list[str] = []

    @contextmanager
    def opened() -> Iterator[Any]:
        events.append("opened")
        try:
            yield object()
        finally:
            events.append("closed")

    def serve(loaded: Any, names: Any) -> object:
        raise InputError("no")

    models = Models[object]([ModelSource(("a",), opened)], serve, keep_alive=None)
    for _ in range(2):
        with pytest.raises(InputError, match="no"):
            asyncio.run(models.open("a"))
    assert events == ["opened", "closed"] * 2


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
    with pytest.raises(InputError, match="two models have the name"):
        create_app([shelf.source("a"), shelf.source("a")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["stories15m", "stories15m"], "two models have the name"),
        (["stories15m", "other=stories15m", "--name", "x"], "--name is for one model"),
        (["stories15m", "other=stories15m", "--alias", "x"], "--alias takes ALIAS=NAME, not 'x'"),
        (
            ["stories15m", "other=stories15m", "--alias", "x=y"],
            "there is no model 'y'; this server has stories15m",
        ),
        (["stories15m", "other=stories15m", "--lora", "x=y"], "--lora takes NAME:ADAPTER=PATH, not x=y"),
        (["stories15m", "o=stories15m", "--alias", "x=o", "--alias", "x=o"], "two models have the name"),
        (["stories15m", "--keep-alive", "5"], "--keep-alive needs several models"),
        (["stories15m", "other=no-such-model"], "no-such-model"),
        (["other=no-such-model"], "pteron: no-such-model does not exist"),
    ],
)
def test_arguments(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", *options]) != 0
    assert message in capsys.readouterr().err


def test_a_folder_of_models(tmp_path: Path) -> None:
    """Its folders and files that are models, and nothing else."""
    (tmp_path / "tiny").symlink_to(BUNDLED["stories15m"])
    for name in ("b.gguf", "c-00001-of-00002.gguf", "c-00002-of-00002.gguf", "mmproj-b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    (tmp_path / "a.pte").write_bytes(b"....ET12")
    (tmp_path / "README.md").write_text("models")
    (tmp_path / "empty").mkdir()
    names = {"a": "a.pte", "b": "b.gguf", "c": "c-00001-of-00002.gguf", "tiny": "tiny"}
    assert expand_folders([str(tmp_path), "x=y", "smollm2"]) == [
        *(f"{name}={tmp_path / file}" for name, file in names.items()),
        "x=y",
        "smollm2",
    ]
    for one in (tmp_path / "tiny", tmp_path / "empty"):  # a model itself, and no models
        assert expand_folders([str(one)]) == [str(one)]


def test_names_aliases_and_adapters(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(BUNDLED["stories15m"])
    options = ["--alias", "tiny=two", "--lora", "three:sql=adapters/sql"]
    given = ["serve", str(tmp_path), "three=stories15m", *options]
    arguments = build_parser(given).parse_args(given)
    found = find_models(expand_folders([arguments.model, *arguments.more]), arguments)
    assert [model.names for model in found] == [("one",), ("two", "tiny"), ("three",)]
    assert [model.adapters for model in found] == [{}, {}, {"sql": "adapters/sql"}]


def test_several_models_with_ray(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    served: list[Any] = []
    monkeypatch.setattr("pteron.extras.check_installed", lambda *_: None)
    monkeypatch.setattr("pteron.cli.serve._serve_ray", lambda *given: served.append(given))
    given = ["serve", "stories15m", "b=stories15m", "--ray", "--keep-alive", "9"]
    assert main(given) == 0
    ((_, model, banner, options),) = served
    assert (model, banner.names) == ("stories15m", ["stories15m", "b"])
    assert options["more_models"] == {"b": "stories15m"}
    assert options["keep_alive"] == 9
    assert main([*given, "--alias", "c=b"]) != 0
    assert "takes no --lora and no --alias" in capsys.readouterr().err
