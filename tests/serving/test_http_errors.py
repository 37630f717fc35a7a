"""Errors of requests: OpenAI's format, and the status that clients expect."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import openai
import pytest
from http_fixtures import CHAT, NAME, TEXT, Running, error, events, openai_client, running
from pydantic import BaseModel
from scripted import Script, ScriptedEngine, ScriptedModel, play

from pteron import DeviceLost, FormatError, InputError, OutOfMemory
from pteron.llm import LLM, Sampling
from pteron.serving import Busy
from pteron.serving.api.messages import MessageBody
from pteron.serving.api.responses import ResponseBody
from pteron.serving.api.schema import ChatBody, CompletionBody, EmbeddingBody
from pteron.serving.api.scores import RerankBody
from pteron.serving.http import Limits
from pteron.serving.http.errors import NO_THREADS, ApiError, anthropic_body, api_error, validated

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [999999]}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"prompt": ["a"] * 9}, "prompt"),
        ({"stop": ["x"] * 99}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": "x" * 999}, "stop"),
        ({"logit_bias": {"abc": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logprobs": 50}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"max_token": 1}, "max_token"),
    ],
    ids=str,
)
def test_invalid_completions(server: Running, change: dict[str, Any], param: str) -> None:
    found = error(server.http.post("/v1/completions", json=TEXT | change), 400)
    assert found["param"] == param
    assert found["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "king", "content": "Hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"tools": [TOOL]}, "tools"),  # stories15m has no chat template
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "look"}]}, "functions"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
    ],
    ids=str,
)
def test_invalid_chats(server: Running, change: dict[str, Any], param: str) -> None:
    assert error(server.http.post("/v1/chat/completions", json=CHAT | change), 400)["param"] == param


@pytest.mark.parametrize(
    ("kind", "name", "accepted", "refused"),
    [
        (ChatBody, "temperature", (0, 2), (-0.01, 2.01)),
        (ChatBody, "top_p", (0.01, 1), (0, 1.01)),
        (ChatBody, "top_k", (-1, 0, 99), (-2, 1.5)),
        (ChatBody, "min_p", (0, 1), (-0.01, 1.01)),
        (ChatBody, "repetition_penalty", (0.01, 9), (0,)),
        (ChatBody, "presence_penalty", (-2, 2), (-2.01, 2.01)),
        (ChatBody, "frequency_penalty", (-2, 2), (-2.01, 2.01)),
        (ChatBody, "logit_bias", ({"1": -100}, {"1": 100}, {}), ({"1": -101}, {"1": 101}, [1])),
        (ChatBody, "top_logprobs", (0, 20), (-1, 21)),
        (ChatBody, "n", (1, 9), (0,)),
        (ChatBody, "max_tokens", (1,), (0,)),
        (ChatBody, "max_completion_tokens", (1,), (0,)),
        (ChatBody, "stop_token_ids", ([0], [1] * 1000), ([-1], [1] * 1001)),
        (ChatBody, "modalities", (["text"], None), (["audio"], ["text", "audio"])),
        (ChatBody, "function_call", ("none", "auto", None), ("look",)),
        (ChatBody, "use_beam_search", (False, None, {}), (True,)),
        (ChatBody, "tool_choice", ("none", "auto", "required", None), ("any", {"type": "function"})),
        (CompletionBody, "logprobs", (0, 20), (-1, 21)),
        (CompletionBody, "best_of", (1, None), (0, 2)),
        (CompletionBody, "suffix", ("", None), ("x",)),
        (EmbeddingBody, "dimensions", (1,), (0,)),
        (EmbeddingBody, "encoding_format", ("float", "base64"), ("int8",)),
        (ResponseBody, "max_output_tokens", (1,), (0,)),
        (ResponseBody, "top_logprobs", (0, 20), (-1, 21)),
        (ResponseBody, "metadata", ("x" * 16_382,), ("x" * 16_383,)),
        (ResponseBody, "background", (False, None), (True,)),
        (MessageBody, "max_tokens", (1,), (0, None)),
        (RerankBody, "top_n", (0, 1), (-1,)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_bounds_of_fields(
    kind: type[BaseModel], name: str, accepted: tuple[Any, ...], refused: tuple[Any, ...]
) -> None:
    message = {"role": "user", "content": "Hi"}
    whole = {"messages": [message], "input": "a", "max_tokens": 1, "query": "a", "documents": ["a"]}
    whole |= {"prompt": "a"} if kind is CompletionBody else {}
    for value in accepted:
        assert getattr(validated(kind, whole | {name: value}), name) == value
    for value in refused:
        with pytest.raises(ApiError) as raised:
            validated(kind, whole | {name: value})
        assert raised.value.param == name


def test_types_and_headers_of_errors() -> None:
    """By status, for the clients of OpenAI and of Anthropic."""
    types = {400: ("invalid_request_error",) * 2, 401: ("authentication_error",) * 2}
    types |= {
        403: ("permission_error",) * 2,
        429: ("rate_limit_error",) * 2,
        500: ("server_error", "api_error"),
    }
    types |= {404: ("invalid_request_error", "not_found_error"), 503: ("server_error", "overloaded_error")}
    types |= {413: ("invalid_request_error", "request_too_large")}
    for status, expected in types.items():
        raised = ApiError(status, "no", code="code")
        theirs = anthropic_body(raised)["error"]
        assert (raised.body["error"]["type"], theirs["type"]) == expected
        assert "details" not in theirs
    thread = anthropic_body(ApiError(400, "no", code=NO_THREADS))["error"]
    assert thread["details"] == {"error_code": NO_THREADS}
    for error_, seconds in ((Busy("full", 0.1), "1"), (Busy("full", 7.01), "8"), (DeviceLost("x"), "5")):
        assert (api_error(error_).headers or {})["Retry-After"] == seconds
    assert api_error(InputError("a")).status == 400
    assert api_error(FormatError("a")).status == 500


def test_neutral_values_are_accepted(server: Running) -> None:
    neutral: dict[str, Any] = {"echo": False, "suffix": None, "best_of": 1}
    neutral |= {"user": "me", "metadata": {"a": "b"}}
    assert server.http.post("/v1/completions", json=TEXT | neutral).status_code == 200
    neutral = dict.fromkeys(("n", "stop", "seed", "functions", "tools")) | {"modalities": ["text"]}
    assert server.http.post("/v1/chat/completions", json=CHAT | neutral).status_code == 200


def test_a_prompt_longer_than_the_context(server: Running) -> None:
    found = error(server.http.post("/v1/completions", json=TEXT | {"prompt": "word " * 300}), 400)
    assert found["code"] == "context_length_exceeded"
    assert "256" in found["message"]


def test_a_long_prompt_is_refused_before_it_is_encoded(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = server.engine.llm.tokenizer
    encoded: list[int] = []

    def counted(text: str, special: bool) -> list[int]:
        encoded.append(len(text))
        return encode(text, special)

    encode = tokenizer._encode
    monkeypatch.setattr(tokenizer, "_encode", counted)
    long = "a" * 3_900_000
    chat = {"messages": [{"role": "user", "content": long}]}
    for route, body in (("/v1/completions", TEXT | {"prompt": long}), ("/v1/chat/completions", CHAT | chat)):
        found = error(server.http.post(route, json=body), 400)
        assert (found["code"], encoded) == ("context_length_exceeded", [])
        assert "bytes; the model's context holds 256 tokens" in found["message"]
    many = [{"role": "user", "content": "Hi"}] * 1000
    found = error(server.http.post("/v1/chat/completions", json=CHAT | {"messages": many}), 400)
    assert found["message"] == "1000 messages; the model's context holds 256 tokens"
    assert encoded == []


def test_a_long_prompt_is_encoded_in_slices(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a token of many bytes, only the tokens show that a text is too long."""
    tokenizer = server.engine.llm.tokenizer
    monkeypatch.setitem(tokenizer.__dict__, "longest", 1 << 20)
    found = error(server.http.post("/v1/completions", json=TEXT | {"prompt": "word " * 400_000}), 400)
    assert found["code"] == "context_length_exceeded"
    assert found["message"].startswith("the prompt has more than ")
    count = int(found["message"].split()[5])
    assert 256 < count < 20_000  # of two million characters


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions", "/v1/embeddings"])
def test_an_unknown_model(server: Running, route: str) -> None:
    body: dict[str, Any] = {"model": "gpt-none", "prompt": "a", "messages": CHAT["messages"], "input": "a"}
    fields = {"/v1/completions": "prompt", "/v1/chat/completions": "messages", "/v1/embeddings": "input"}
    asked = {name: body[name] for name in ("model", fields[route])}
    found = error(server.http.post(route, json=asked), 404)
    assert (found["code"], found["param"]) == ("model_not_found", "model")


def test_a_language_model_makes_no_embeddings(server: Running) -> None:
    found = error(server.http.post("/v1/embeddings", json={"model": NAME, "input": "a"}), 400)
    assert "does not support embeddings" in found["message"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"5", b"nul", b"\xff\xfe", b'{"model": "\xff"}', b"[" * 100_000),
        b'{"a":' * 50_000,
        b'{"model": "stories15m", "prompt": "a", "seed": ' + b"9" * 5000 + b"}",
        b'{"model": "stories15m", "prompt": "\xed\xa0\xbd"}',  # half of a surrogate pair
        '{"model": "stories15m", "prompt": "a"}'.encode("utf-16"),
    ],
    ids=lambda body: ascii(body[:20]),
)
def test_a_body_that_is_not_json(server: Running, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    found = error(server.http.post("/v1/completions", content=body, headers=headers), 400)
    assert found["code"] == "invalid_json"


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", r'"\ud83d"', r'{"\uDE00\ud83d": 1}'])
@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("/v1/completions", '"prompt": "a", "user": {}'),
        ("/v1/completions", '"prompt": {}'),
        ("/v1/responses", '"input": "a", "metadata": {{"a": [{}]}}'),
        ("/v1/responses", '"input": [{{"role": "user", "content": "a", "more": {}}}]'),
        ("/apply_template", '"messages": [{{"role": "user", "content": {}}}]'),
    ],
)
def test_what_json_in_utf8_cannot_have(scripted: Running, route: str, fields: str, value: str) -> None:
    """Python's parser takes it, but a response that repeats it could not be written."""
    body = f'{{"model": "{NAME}", {fields.format(value)}}}'
    response = scripted.http.post(route, content=body, headers={"Content-Type": "application/json"})
    assert error(response, 400)["code"] == "invalid_json"
    assert scripted.logged(response)["status"] == 400


@pytest.mark.parametrize(
    ("route", "change", "message"),
    [
        ("/v1/responses", {"input": [{"role": "user", "content": "a"}] * 10_001}, "input: List should have"),
        ("/v1/responses", {"input": 5}, "input: Input should be a valid string"),
        ("/v1/responses", {"tool_choice": {"type": "function"}}, "tool_choice.name is missing"),
        ("/v1/responses", {"text": {"Format": 1}}, "Format is unknown; did you mean format?"),
        ("/v1/responses", {"temprature": 1}, "temprature is unknown; did you mean temperature?"),
        ("/v1/chat/completions", {"min_tokens": 5}, "min_tokens: this server does not support min_tokens"),
        ("/v1/chat/completions", {"stop_token_ids": [-2]}, "stop_token_ids.0: Input should be greater than"),
        ("/v1/chat/completions", {"messages": CHAT["messages"] * 10_001}, "messages: List should have"),
        ("/v1/chat/completions", {"tools": [TOOL] * 1001}, "tools: List should have at most 1000"),
        ("/v1/rerank", {"documents": [{"a": 1}], "query": "a"}, "documents.0.text is missing"),
        ("/api/chat", {"format": 5}, "format: Input should be a valid"),
        ("/api/chat", {"messages": [{"role": "user"}] * 10_001}, "messages: List should have"),
        ("/v1/messages", {"messages": [], "max_tokens": 2}, "messages: List should have at least 1"),
        ("/v1/messages", {**CHAT, "system": 5}, "system: Input should be a valid string"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_messages_name_fields(scripted: Running, route: str, change: dict[str, Any], message: str) -> None:
    body = {"model": NAME} | ({"input": "a"} if "responses" in route else {}) | change
    if route == "/v1/chat/completions":
        body = CHAT | change
    response = scripted.http.post(route, json=body)
    assert response.status_code == 400
    found = response.json()["error"]
    assert (found if isinstance(found, str) else found["message"]).startswith(message)


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/responses"])
def test_fields_of_other_servers_are_ignored(scripted: Running, route: str) -> None:
    own = {"input": "a"} if "responses" in route else {"messages": CHAT["messages"]}
    more = {"cache_prompt": True, "min_tokens": 0, "ignore_eos": False, "x": [1]}
    assert scripted.http.post(route, json={"model": NAME, **own, **more}).status_code == 200


def test_a_byte_order_mark(scripted: Running) -> None:
    """Some clients on Windows write one."""
    content = b"\xef\xbb\xbf" + json.dumps(TEXT).encode()
    response = scripted.http.post(
        "/v1/completions", content=content, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 200


def test_surrogate_pairs(scripted: Running) -> None:
    body = f'{{"model": "{NAME}", "input": "a", "user": "\\ud83d\\ude00 \\\\ud83d"}}'
    response = scripted.http.post("/v1/responses", content=body, headers={"Content-Type": "application/json"})
    assert response.json()["user"] == "😀 \\ud83d"


def test_other_content_types(server: Running) -> None:
    """A page of another site may send this without a CORS preflight. curl, which names no origin, may too."""
    form = "application/x-www-form-urlencoded"
    origin = {"Origin": "https://a.example"}
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": form, **origin}, origin):
        response = server.http.post("/v1/completions", content=b'{"model":"x"}', headers=headers)
        assert "application/json" in error(response, 400)["message"]
    for headers in ({"Content-Type": form}, {}):
        error(
            server.http.post("/v1/completions", content=b'{"model":"x","prompt":"a"}', headers=headers), 404
        )


def test_how_an_answer_is_drawn(scripted: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the model's authors recommend, where a request says nothing; each answer has its own seed."""
    recommended = Sampling(temperature=0.7, top_k=9, top_p=0.8)
    monkeypatch.setattr(scripted.engine.llm, "sampling", recommended)
    engine = play(scripted, Script(["Once"]))
    asked: dict[str, Any] = {"n": 2, "seed": (1 << 31) - 1, "top_k": -1}  # for some clients: all
    assert scripted.http.post("/v1/completions", json=TEXT | asked).status_code == 200
    found = [request.sampling for request in engine.requests]
    assert found == [replace(recommended, top_k=0, seed=seed) for seed in ((1 << 31) - 1, 0)]


def test_roles_that_templates_know(stories: LLM) -> None:
    model = ScriptedModel.like(stories, "{{ messages }}")
    messages = [{"role": "developer", "content": "A"}, {"role": "user", "content": "B"}]
    with running(ScriptedEngine(model, lambda _: Script(["x"]))) as server:
        body = {"model": NAME, "messages": messages}
        assert server.http.post("/v1/chat/completions", json=body).status_code == 200
    assert [each["role"] for each in model.conversations[-1]["messages"]] == ["system", "user"]


def test_the_only_model_needs_no_name(scripted: Running) -> None:
    asked = {"messages": CHAT["messages"]}
    response = scripted.http.post("/v1/chat/completions", json=asked)
    assert response.json()["model"] == NAME


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": [True]}, "prompt: expected a string, a list of strings, a list of token ids"),
        ({"prompt": {"text": "Hi"}}, "prompt: expected a string"),
        ({"prompt": [1, "a"]}, "prompt: expected a string"),
        ({"stop": [5]}, "stop: expected a string or a list of strings"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "parts of type text"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: expected a string, or a list"),
        ({"messages": CHAT["messages"], "tool_choice": "always"}, '"required", or the name of a function'),
    ],
    ids=str,
)
def test_errors_of_fields_with_several_types(server: Running, change: dict[str, Any], said: str) -> None:
    is_chat = "messages" in change
    route = "/v1/chat/completions" if is_chat else "/v1/completions"
    found = error(server.http.post(route, json=(CHAT if is_chat else TEXT) | change), 400)
    assert said in found["message"]
    assert found["code"] == "invalid_value"
    assert found["param"].split(".")[0] in change


def test_unknown_paths(server: Running) -> None:
    for path in ("/v1/nothing", "/openapi.json", "/docs"):
        assert error(server.http.get(path), 404)["code"] == "not_found"
    response = server.http.get("/v1/completions")
    assert error(response, 405)["code"] == "method_not_allowed"
    assert response.headers["allow"] == "POST"


def test_unknown_paths_of_the_page(scripted: Running) -> None:
    client = scripted.http
    for path in ("/page/nothing.js", "/page/../service.py", "/nothing", "/v1/nothing"):
        assert error(client.get(path), 404)["code"] == "not_found"
    assert error(client.post("/"), 405)["code"] == "method_not_allowed"
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for method, path, status in (("GET", "/page/nothing.js", 404), ("GET", "/a", 404), ("POST", "/", 405)):
        response = client.request(method, path, headers=browser)
        assert response.status_code == status
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert path in response.text
        assert "x-request-id" in response.headers
    assert set(client.post("/", headers=browser).headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert error(client.get("/v1/nothing", headers=browser), 404)["code"] == "not_found"


def test_exceptions_of_the_official_client(server: Running) -> None:
    client = openai_client(server)
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model=NAME, prompt="Hi", temperature=7)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="none", prompt="Hi")


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (Busy("64 requests wait", 2.3), 429, "rate_limit_exceeded"),
        (OutOfMemory("no room"), 503, "out_of_memory"),
        (DeviceLost("a secret of the driver"), 503, "device_lost"),
        (RuntimeError("a secret of the server"), 500, "internal_error"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_the_engine(scripted: Running, raised: Exception, status: int, code: str) -> None:
    def fail(_: object) -> Script:
        raise raised

    play(scripted, fail)
    response = scripted.http.post("/v1/completions", json=TEXT)
    found = error(response, status)
    assert found["code"] == scripted.logged(response)["error"] == code
    assert "secret" not in response.text
    if status == 429:
        assert response.headers["retry-after"] == "3"
        assert found["type"] == "rate_limit_error"
    if status == 500:
        failure = [line for line in scripted.log() if line["event"] == "failure"][-1]
        assert "a secret of the server" in failure["trace"]
        assert (failure["id"], failure["route"]) == (response.headers["x-request-id"], "/v1/completions")


@pytest.mark.parametrize("raised", [OutOfMemory("no room"), RuntimeError("a secret")], ids=str)
def test_errors_during_a_stream(scripted: Running, raised: Exception) -> None:
    play(scripted, Script(["Once", " upon"], error=raised))
    logged = len(scripted.log())
    *chunks, last = events(scripted.http.post("/v1/completions", json=TEXT | {"stream": True}))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Once", " upon"]
    assert last["error"].keys() == {"message", "type", "param", "code"}
    assert last["error"]["code"] in ("out_of_memory", "internal_error")
    assert "secret" not in str(last)
    failures = [line for line in scripted.log()[logged:] if line["event"] == "failure"]
    found = [(line["route"], "a secret" in line["trace"]) for line in failures]
    assert found == [("/v1/completions", True)] * isinstance(raised, RuntimeError)
    assert scripted.http.post("/v1/completions", json=TEXT).status_code in (500, 503)
    with pytest.raises(openai.APIError):
        list(openai_client(scripted).completions.create(**TEXT, stream=True))


def test_an_answer_that_does_not_begin_in_time(scripted: Running) -> None:
    play(scripted, Script([], reason="time"))
    assert error(scripted.http.post("/v1/completions", json=TEXT), 503)["code"] == "timeout"
    play(scripted, Script(["Once"], reason="time"))
    found = scripted.http.post("/v1/completions", json=TEXT).json()
    assert found["choices"][0]["finish_reason"] == "length"


def test_a_rejected_answer_cancels_the_others(scripted: Running) -> None:
    def third_fails(_: object) -> Script:
        if len(engine.requests) == 3:
            raise Busy("too many", 1.0)
        return Script([], hangs=True)

    engine = play(scripted, third_fails)
    error(scripted.http.post("/v1/completions", json=TEXT | {"n": 3}), 429)
    assert [answer.is_cancelled for answer in engine.answers] == [True, True]


def test_limits_are_checked() -> None:
    with pytest.raises(Exception, match="body_bytes must be above 0"):
        Limits(body_bytes=0)


def test_a_chat_template_that_fails(stories: LLM) -> None:
    from pteron import InputError

    model = ScriptedModel.like(stories, "{{ x }}")

    def refuse(*_: object, **__: object) -> str:
        raise InputError("the chat template cannot render these messages: roles must alternate")

    model.render_chat = refuse  # type: ignore[method-assign]
    with running(ScriptedEngine(model, lambda _: Script(["x"]))) as server:
        assert "alternate" in error(server.http.post("/v1/chat/completions", json=CHAT), 400)["message"]
