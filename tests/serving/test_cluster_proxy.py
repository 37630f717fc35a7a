"""The proxy of a cluster and a replica behind it, without Ray: what a client gets when replicas fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")

from http_fixtures import until
from scripted import Script, ScriptedEngine
from starlette.types import Message as AsgiMessage

from pteron import DeviceError, InputError
from pteron.cli import main
from pteron.llm import LLM
from pteron.serving.cluster import Options
from pteron.serving.cluster.proxy import Proxy, ProxyCall
from pteron.serving.cluster.replica import Replica
from pteron.serving.http.errors import ApiError
from pteron.serving.http.limits import Limits

NAME = "stories15m"
CHAT = "/v1/chat/completions"
START: AsgiMessage = {"type": "http.response.start", "status": 200}
START["headers"] = [(b"content-type", b"text/plain")]
STREAM: AsgiMessage = {**START, "headers": [(b"content-type", b"text/event-stream; charset=utf-8")]}


def said(text: bytes, more: bool = False) -> AsgiMessage:
    return {"type": "http.response.body", "body": text, "more_body": more}


def scope_of(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": None,
        "server": None,
    }


class LostError(Exception):
    pass


class Scripted:
    """A call that yields the messages of a script, and raises its exceptions."""

    def __init__(self, script: list[Any]) -> None:
        self._script = script
        self.refusal: Exception | None = None  # of the call itself
        self.is_cancelled = False

    async def __aiter__(self) -> AsyncIterator[list[AsgiMessage]]:
        for step in self._script:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                yield [step]

    def cancel(self) -> None:
        self.is_cancelled = True


class Client:
    """One request through a proxy: the calls of replicas, and the response."""

    def __init__(self, *scripts: list[Any], limits: Limits | None = None) -> None:
        self.calls = [Scripted(script) for script in scripts]
        self.asked: list[tuple[str, Mapping[str, Any], bytes]] = []
        self.sent: list[AsgiMessage] = []
        self.leaves = asyncio.Event()
        self.proxy = Proxy(self._next, limits or Limits(), self._map_error)

    def _next(self, key: str, scope: Mapping[str, Any], body: bytes) -> ProxyCall:
        self.asked.append((key, scope, body))
        call = self.calls[len(self.asked) - 1]
        if call.refusal is not None:
            raise call.refusal
        return call

    @staticmethod
    def _map_error(error: BaseException) -> ApiError | None:
        return None if isinstance(error, LostError) else ApiError(500, "no", code="internal_error")

    async def ask(
        self,
        *parts: bytes,
        path: str = CHAT,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        method: str = "POST",
    ) -> None:
        """Send a request in parts; an empty last part never arrives."""
        self.unread: list[AsgiMessage] = [
            {"type": "http.request", "body": part, "more_body": index + 1 < len(parts)}
            for index, part in enumerate(parts)
            if part or index == 0
        ]

        async def receive() -> AsgiMessage:
            if self.unread:
                return self.unread.pop(0)
            await self.leaves.wait()
            return {"type": "http.disconnect"}

        async def send(message: AsgiMessage) -> None:
            self.sent.append(message)

        scope = {**scope_of(path), "method": method, "headers": list(headers), "app": object()}
        await asyncio.wait_for(self.proxy(scope, receive, send), 60)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def run(client: Client, *parts: bytes, **options: Any) -> Client:
    asyncio.run(client.ask(*parts, **options))
    return client


def test_an_answer_is_passed_on() -> None:
    client = run(Client([START, said(b"a", True), said(b"b")]), b'{"x":', b"1}")
    assert client.status == 200
    assert client.body == b"ab"
    ((_, scope, body),) = client.asked
    assert body == b'{"x":1}'
    assert "app" not in scope  # objects of the web server are not sent
    assert client.calls[0].is_cancelled


@pytest.mark.parametrize(
    ("scripts", "status", "tries", "body"),
    [
        ([[LostError()], [START, said(b"a")]], 200, 2, b"a"),
        ([[LostError()], [LostError()], [START, said(b"a")]], 503, 2, b'"code":"replica_lost"'),
        ([[ValueError()], [START, said(b"a")]], 500, 1, b'"code":"internal_error"'),
        ([[STREAM, said(b"data: 1\n\n", True)]], 200, 1, b"incomplete"),
    ],
    ids=["lost before it answers", "two lost", "another error is not retried", "ends too early"],
)
def test_replicas_that_fail(scripts: list[list[Any]], status: int, tries: int, body: bytes) -> None:
    client = run(Client(*scripts), b"{}")
    assert (client.status, len(client.asked)) == (status, tries)
    assert body in client.body
    assert ((b"retry-after", b"1") in client.sent[0]["headers"]) == (status == 503)


def test_a_broken_stream_ends_with_an_error() -> None:
    client = run(Client([STREAM, said(b"data: 1\n\n", True), LostError()]), b"{}")
    assert (client.status, len(client.asked)) == (200, 1)  # it is not retried
    first, last = client.body.split(b"\n\n")[:2]
    assert first == b"data: 1"
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "replica_lost"
    assert not client.sent[-1]["more_body"]


def test_a_broken_answer_is_aborted() -> None:
    with pytest.raises(ApiError):
        run(Client([START, said(b"a", True), LostError()]), b"{}")


def test_a_client_that_leaves() -> None:
    async def leave() -> Client:
        never = asyncio.Event()
        client = Client([STREAM, said(b"data: 1\n\n", True), never])
        asking = asyncio.create_task(client.ask(b"{}"))
        while len(client.sent) < 2:
            await asyncio.sleep(0)
        client.leaves.set()
        await asking
        return client

    client = asyncio.run(leave())
    assert client.calls[0].is_cancelled
    assert client.body == b"data: 1\n\n"


def test_no_answer_in_time() -> None:
    async def wait() -> Client:
        client = Client([asyncio.Event()], limits=Limits(seconds=0.01))
        client.proxy._grace = 0.01
        await client.ask(b"{}")
        return client

    client = asyncio.run(wait())
    assert client.status == 503
    assert client.calls[0].is_cancelled


def test_a_replica_reports_a_timeout_itself() -> None:
    """The proxy waits longer than the limit of a request."""
    late = asyncio.Event()

    async def ask_late() -> Client:
        asyncio.get_running_loop().call_later(0.1, late.set)
        client = Client([late, START, said(b"a")], limits=Limits(seconds=0.01))
        await client.ask(b"{}")
        return client

    assert asyncio.run(ask_late()).body == b"a"


def test_what_a_replica_opens(monkeypatch: pytest.MonkeyPatch, stories: LLM) -> None:
    """The GPU that the user names, or the one that Ray has reserved; models of a cluster are of one age."""
    opened: list[Any] = []

    def open_served(*given: Any, **options: Any) -> LLM:
        opened.append((given, options["device"], options["sequences"]))
        return stories

    def in_engine(llm: LLM, **limits: Any) -> nullcontext[ScriptedEngine]:
        opened.append(limits)
        return nullcontext(ScriptedEngine(llm, lambda _: Script(["x"])))

    monkeypatch.setattr("pteron.serving.cluster.replica.open_served", open_served)
    monkeypatch.setattr("pteron.serving.cluster.replica.in_engine", in_engine)
    for device, adapter in (("mine", "0"), (None, "0"), (None, None)):
        options = Options("m", "n", device=device, created=5, sequences=3, queue=7, is_quiet=True)
        found = ask(Replica(options, adapter), {}, path="/v1/models", method="GET")
        assert json.loads(found.body)["data"][0]["created"] == 5
        assert opened == [(("m",), device or adapter, 3), {"running": 3, "waiting": 7}]
        opened.clear()


def test_a_call_that_cannot_be_made() -> None:
    client = Client([], [START, said(b"a")])
    client.calls[0].refusal = LostError()
    assert run(client, b"{}").body == b"a"
    client = Client([])
    client.calls[0].refusal = ValueError("internal")
    run(client, b"{}")
    assert (client.status, len(client.asked)) == (500, 1)
    assert json.loads(client.body)["error"]["message"] == "no"


@pytest.mark.parametrize("announced", [(), ((b"content-length", b"11"),)], ids=["counted", "announced"])
def test_too_large_a_body(announced: tuple[tuple[bytes, bytes], ...]) -> None:
    client = run(Client(limits=Limits(body_bytes=10)), b"123456", b"78901", headers=announced)
    assert (client.status, client.asked) == (413, [])
    assert json.loads(client.body)["error"]["message"].startswith("the request has 11 bytes or more")
    assert len(client.unread) == 0  # the client would not read the error before it has sent all


def test_a_client_that_leaves_before_its_body_has_come() -> None:
    async def leave() -> Client:
        client = Client()
        client.leaves.set()
        await client.ask(b"1", b"")
        return client

    client = asyncio.run(leave())
    assert (client.sent, client.asked) == ([], [])


def test_a_session_by_its_name() -> None:
    def key(name: bytes) -> str:
        client = Client([START, said(b"a")])
        run(client, b'{"prompt": "x"}', headers=((b"X-Session-Id", name),))
        return client.asked[0][0]

    assert key(b"one") == key(b"one") != key(b"two")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"replicas": 0}, {"replicas": (2, 1)}, {"sequences": 0}, {"queue": 0}, {"proxies": 0}),
        {"name": ""},
        *({"gpus": -1}, {"gpus": 1.5}, {"cpus": float("nan")}, {"more_seconds": -1}),
        {"fewer_seconds": float("inf")},
    ],
    ids=str,
)
def test_invalid_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Options(**{"model": "m", "name": "n", **wrong})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--replicas", "2"], "--replicas needs --ray"),
        (["--ray-address", "host:1"], "--ray-address needs --ray"),
        (["--proxies", "2"], "--proxies needs --ray"),
        (["--ray", "--log", "file"], "--log has no effect with --ray"),
        (["--ray", "--certificate", "file"], "--certificate has no effect with --ray"),
        (["--ray", "--grace", "5"], "--grace has no effect with --ray"),
        (["--ray", "--cache-bytes", "9999999"], "needs --sequences, by which replicas are scaled"),
        (["--ray", "--replicas", "0"], "expected a number or a range, such as 2 or 1-4, not '0'"),
        (["--ray", "--replicas", "4-1"], "expected a number or a range, such as 2 or 1-4, not '4-1'"),
    ],
    ids=str,
)
def test_options_of_the_command(given: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["serve", "stories15m", *given])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code
    assert why in capsys.readouterr().err


class Direct:
    """A call of a replica in this process."""

    def __init__(self, replica: Replica, scope: Mapping[str, Any], body: bytes) -> None:
        self._generator: AsyncGenerator[list[AsgiMessage], None] = replica.answer(scope, body)

    def __aiter__(self) -> AsyncIterator[list[AsgiMessage]]:
        return self._generator

    def cancel(self) -> None:
        pass


ASKED: Any = {"model": NAME, "messages": [{"role": "user", "content": "A cat"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica(Options(NAME, NAME, sequences=3, page=False, is_quiet=True))
    made.check_health()
    yield made
    made.close()
    with pytest.raises(DeviceError, match="its engine has ended"):
        made.check_health()


def ask(replica: Replica, body: dict[str, Any], path: str = CHAT, method: str = "POST") -> Client:
    client = Client()
    client.proxy = Proxy(lambda key, scope, text: Direct(replica, scope, text), Limits(), lambda error: None)
    headers = ((b"content-type", b"application/json"), (b"host", b"localhost"))
    return run(client, json.dumps(body).encode(), path=path, headers=headers, method=method)


def test_streamed_equals_whole(replica: Replica, stories: LLM) -> None:
    whole = json.loads(ask(replica, ASKED).body)["choices"][0]["message"]["content"]
    assert whole == stories(ASKED["messages"], max_new_tokens=4)
    events = ask(replica, {**ASKED, "stream": True}).body.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-2]]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == whole


def test_errors_of_the_application(replica: Replica) -> None:
    refused = ask(replica, {**ASKED, "max_tokens": "many"})
    assert refused.status == 400
    assert json.loads(refused.body)["error"]["param"] == "max_tokens"
    assert ask(replica, {}, path="/nowhere").status == 404


def test_a_closed_call_frees_the_sequence(replica: Replica) -> None:
    async def leave() -> None:
        body = json.dumps({**ASKED, "max_tokens": 200, "stream": True}).encode()
        generator = replica.answer(scope_of(CHAT), body)
        await anext(generator)
        await generator.aclose()

    engine = replica._server.models.loaded[0].engine
    assert engine is not None
    before = engine.load.cancelled
    asyncio.run(leave())
    until(lambda: engine.load.cancelled == before + 1 and not engine.load.running)


def test_several_models() -> None:
    options = Options(NAME, "a", more_models={"b": NAME}, sequences=2, page=False, is_quiet=True)
    replica = Replica(options)
    assert replica._server.models.loaded == []
    for name in ("b", "a", "b"):
        found = json.loads(ask(replica, {**ASKED, "model": name}).body)
        assert found["model"] == name
    assert len(replica._server.models.loaded) == 2
    replica.check_health()
    replica.close()
    assert replica._server.models.loaded == []
    with pytest.raises(InputError, match="no adapters and no aliases"):
        Options(NAME, "a", more_models={"b": NAME}, aliases=("c",))
