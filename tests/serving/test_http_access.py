"""Access: keys, host names, limits and CORS."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from http_fixtures import NAME, PATIENCE, TEXT, Running, error, openai_client, post_raw, running, until
from scripted import Script, ScriptedEngine, play

from pteron import InputError
from pteron.llm import LLM
from pteron.serving.http import Limits
from pteron.serving.http.api_keys import ApiKeys, read_api_keys


@pytest.fixture
def engine(stories: LLM) -> ScriptedEngine:
    return ScriptedEngine(stories, lambda _: Script(["Once"]))


@pytest.fixture(scope="module")
def guarded(stories: LLM) -> Iterator[Running]:
    engine = ScriptedEngine(stories, lambda _: Script(["Once"]))
    with running(engine, api_keys=["first-key", "second-key"], page=True) as server:
        yield server


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer first-ke", "Bearer first-key2", "Basic first-key", "first-key"]
)
def test_all_routes_but_health_need_a_key(guarded: Running, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    engine = play(guarded, Script(["Once"]))
    routes = {"/v1/models": "GET", "/v1/completions": "POST", "/metrics": "GET", "/x": "GET"}
    routes |= {"/page": "GET", "/pages": "GET", "/tokenize": "POST"}
    for route, method in routes.items():
        response = guarded.http.request(method, route, headers=headers)
        assert error(response, 401)["code"] == guarded.logged(response)["error"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"
    assert guarded.http.get("/health", headers=headers).status_code == 200
    assert guarded.http.get("/ready", headers=headers).status_code == 200
    assert engine.requests == []


def test_the_page_needs_no_key_unless_it_is_closed(engine: ScriptedEngine, guarded: Running) -> None:
    for path in ("/", "/page/main.js"):
        assert guarded.http.get(path).status_code == 200
    with running(engine, api_keys=["key"], page=True, open_page=False) as server:
        for path in ("/", "/page/main.js"):
            error(server.http.get(path), 401)
            assert server.http.get(path, headers={"Authorization": "Bearer key"}).status_code == 200


def test_each_key_is_valid(guarded: Running) -> None:
    for key in ("first-key", "second-key"):
        client = openai_client(guarded, api_key=key)
        assert client.completions.create(model=NAME, prompt="Hi").choices[0].text == "Once"
        spelled = {"Authorization": f"bearer   {key}"}  # as HTTP allows
        assert guarded.http.get("/v1/models", headers=spelled).status_code == 200
    with pytest.raises(openai.AuthenticationError):
        openai_client(guarded, api_key="third").models.list()
    assert "first-key" not in str(guarded.log())


def test_sources_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\nfrom-file\n\n  spaced  \n")
    found = read_api_keys(["argument"], file, {"PTERON_API_KEYS": "one, two,argument"})
    assert found == ("argument", "from-file", "spaced", "one", "two")
    assert read_api_keys([], None, {}) == ()
    assert not ApiKeys()
    file.write_text("# nothing\n")
    with pytest.raises(InputError, match="has no key"):
        read_api_keys([], file, {})
    for bad in ("", "two words", "schlüssel", "new\nline"):
        with pytest.raises(InputError, match="printable ASCII"):
            ApiKeys([bad])


def test_body_limit(engine: ScriptedEngine) -> None:
    with running(engine, limits=Limits(body_bytes=1000)) as server:
        body = b'{"model": "stories15m", "prompt": "' + b"x" * 2000 + b'"}'
        headers = {"Content-Type": "application/json"}
        for content in (body, iter([body[:700], body[700:]])):  # with a length, and in chunks without one
            response = server.http.post("/v1/completions", content=content, headers=headers)
            assert error(response, 413)["code"] == server.logged(response)["error"] == "request_too_large"
        assert engine.requests == []
        assert server.http.post("/v1/completions", json=TEXT).status_code == 200


def test_a_body_that_does_not_come(engine: ScriptedEngine) -> None:
    with running(engine, limits=Limits(body_seconds=0.2)) as server:
        with post_raw(server, b"{", 100) as connection:
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()  # to its end
        assert answer.startswith("HTTP/1.1 408")
        assert "did not arrive within 0.2 seconds" in answer


def test_a_body_above_the_limit_is_read_before_the_error(engine: ScriptedEngine) -> None:
    """A client that sends all of its body before it reads must get to read the error."""
    with running(engine, limits=Limits(body_bytes=1 << 16)) as server:
        with post_raw(server, b"x" * (15 << 16)) as connection:
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        assert answer.startswith("HTTP/1.1 413")
        assert "request_too_large" in answer
        response = server.http.post("/v1/completions", content=b"x" * (1 << 20))
        assert error(response, 413)["code"] == "request_too_large"


def stalled(server: Running, data: bytes = b"GET /health HT") -> socket.socket:
    """A connection whose request does not come."""
    host, port = server.address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), PATIENCE)
    connection.sendall(data)
    return connection


def is_closed(connection: socket.socket) -> bool:
    with suppress(ConnectionResetError):
        return connection.recv(100) == b""
    return True


@pytest.mark.parametrize("data", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: x\r\nX: "], ids=str)
def test_headers_that_do_not_come(engine: ScriptedEngine, data: bytes) -> None:
    with running(engine, limits=Limits(header_seconds=0.2)) as server, stalled(server, data) as connection:
        assert is_closed(connection)


def test_half_a_second_request_on_a_connection(engine: ScriptedEngine) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with running(engine, limits=Limits(header_seconds=0.3)) as server, stalled(server, request) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(request[:9])
        while data := connection.recv(65536):  # the rest of the first response
            assert not data.startswith(b"HTTP/1.1")


def test_idle_connections_give_way(engine: ScriptedEngine) -> None:
    with running(engine, limits=Limits(connections=3)) as server:
        held = [stalled(server) for _ in range(9)]
        assert httpx.get(f"{server.address}/health", timeout=PATIENCE).status_code == 200
        assert all(is_closed(connection) for connection in held[:6])
        for connection in held:
            connection.close()


def test_connections_with_requests_are_kept(engine: ScriptedEngine) -> None:
    engine.play = lambda _: Script([], hangs=True)
    body = json.dumps(TEXT).encode()
    with running(engine, limits=Limits(connections=2)) as server:
        with post_raw(server, body), post_raw(server, body):
            until(lambda: len(engine.answers) == 2)
            with stalled(server) as third:
                assert is_closed(third)
            assert not any(answer.is_cancelled for answer in engine.answers)
        until(lambda: all(answer.is_cancelled for answer in engine.answers))
    engine.play = lambda _: Script(["Once"])


def test_header_limit(engine: ScriptedEngine) -> None:
    with running(engine, limits=Limits(header_bytes=4096)) as server:
        assert server.http.get("/health", headers={"X-Long": "x" * 2000}).status_code == 200
        with suppress(httpx.HTTPError):  # the connection may be closed before all of it is sent
            assert server.http.get("/health", headers={"X-Long": "x" * 1_000_000}).status_code == 400
        assert httpx.get(f"{server.address}/health", timeout=PATIENCE).status_code == 200


def test_only_known_host_names_are_accepted(engine: ScriptedEngine) -> None:
    with running(engine, hosts=["127.0.0.1", "localhost", "[::1]", "x.example"]) as server:
        assert server.http.get("/v1/models").status_code == 200
        for name in ("localhost:8000", "[::1]:5", "LOCALHOST", "x.example"):
            assert server.http.get("/v1/models", headers={"Host": name}).status_code == 200
        names = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", ""]
        for name in (*names, "evilx.example", "evil.x.example", "example", "evil.localhost:8000"):
            response = server.http.get("/v1/models", headers={"Host": name})
            assert error(response, 403)["code"] == "unknown_host"


def test_cors_and_open_metrics(engine: ScriptedEngine, guarded: Running) -> None:
    ask: dict[str, Any] = {
        "Origin": "https://chat.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    assert "access-control-allow-origin" not in guarded.http.options("/v1/models", headers=ask).headers
    with running(engine, api_keys=["key"], origins=["https://chat.example"], open_metrics=True) as server:
        assert server.http.get("/metrics").status_code == 200
        allowed = server.http.options("/v1/chat/completions", headers=ask)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://chat.example"
        refused = server.http.options("/v1/models", headers=ask | {"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in refused.headers
        origin = {"Origin": "https://chat.example"}
        response = server.http.post("/v1/completions", json=TEXT, headers=origin)
        assert response.status_code == 401  # and the page may read why
        assert response.headers["access-control-allow-origin"] == "https://chat.example"
        assert set(response.headers["access-control-expose-headers"].split(", ")) == {
            "X-Request-Id",
            "Retry-After",
        }
        for method, names in (("DELETE", "x-api-key"), ("GET", "authorization"), ("PUT", "content-type")):
            asked = ask | {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": names}
            status = server.http.options("/v1/responses/resp_1", headers=asked).status_code
            assert status == (400 if method == "PUT" else 200)


def test_limits_of_a_request(engine: ScriptedEngine) -> None:
    limits = Limits(prompt_tokens=3, new_tokens=5, choices=2, stops=1, stop_characters=4)
    with running(engine, limits=limits) as server:
        long = {"prompt": "Once upon a time there was"}
        for change in (long, {"n": 3}, {"stop": ["a", "b"]}, {"stop": "abcde"}):
            error(server.http.post("/v1/completions", json=TEXT | change), 400)
        allowed = {"n": 2, "stop": "abcd", "max_tokens": 6}  # an answer of 5 tokens
        assert server.http.post("/v1/completions", json=TEXT | allowed).status_code == 200
        chat = {"model": NAME, "messages": [{"role": "user", "content": "a"}]}
        assert "limit is 3" in error(server.http.post("/v1/chat/completions", json=chat), 400)["message"]
    assert [request.max_new_tokens for request in engine.requests] == [5, 5]
    assert all(
        request.seconds is not None and 0 < request.seconds < limits.seconds for request in engine.requests
    )


def test_the_longest_prompt(engine: ScriptedEngine) -> None:
    with running(engine, limits=Limits(prompt_tokens=3)) as server:
        for count, status in ((3, 200), (4, 400)):
            body = TEXT | {"prompt": [5] * count}
            assert server.http.post("/v1/completions", json=body).status_code == status
