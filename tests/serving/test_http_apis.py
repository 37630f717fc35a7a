"""Other APIs than OpenAI's chat: responses, Anthropic's messages, ollama's, tokens, each in its format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from fastapi.testclient import TestClient
from http_fixtures import NAME, Running, error, openai_client, running
from scripted import Script, ScriptedEngine, ScriptedModel, play
from tool_fixtures import HERMES, MESSAGES, WEATHER

from pteron.llm import LLM
from pteron.serving.api.messages import PromptBody, to_chat
from pteron.serving.http import Limits

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
MESSAGE: dict[str, Any] = {"model": NAME, "max_tokens": 20, "messages": MESSAGES}
TOOL: dict[str, Any] = {"name": "weather", "description": "of a city", "input_schema": WEATHER}
FUNCTION: dict[str, Any] = {"type": "function", "name": "weather", "parameters": WEATHER}
CHAT_TOOL: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}


class Scene:
    """A server with scripted answers, whose model has a template with tools."""

    def __init__(self, model: ScriptedModel, server: Running) -> None:
        self.model = model
        self.server = server

    def play(self, text: str, **script: Any) -> ScriptedEngine:
        self.model.conversations.clear()
        return play(self.server, Script([text[at : at + 5] for at in range(0, len(text), 5)], **script))

    def post(self, route: str, status: int = 200, **body: Any) -> Any:
        response = self.server.http.post(route, json=body)
        assert response.status_code == status, response.text
        return response.json()

    @property
    def seen(self) -> list[dict[str, Any]]:
        """The messages that the template got."""
        found: list[dict[str, Any]] = self.model.conversations[-1]["messages"]
        return found


@pytest.fixture(scope="module")
def scene(stories: LLM) -> Iterator[Scene]:
    model = ScriptedModel.like(stories, HERMES)
    with running(ScriptedEngine(model, lambda _: Script(["x"]))) as server:
        yield Scene(model, server)


def named_events(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream that names them."""
    found = []
    for block in response.text.strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


class TestMessages:
    def test_text(self, scene: Scene) -> None:
        scene.play("Rain, all day.")
        found = scene.post("/v1/messages", **MESSAGE, system=[{"type": "text", "text": "Be brief."}])
        assert found["content"] == [{"type": "text", "text": "Rain, all day."}]
        assert (found["stop_reason"], found["stop_sequence"], found["role"]) == (
            "end_turn",
            None,
            "assistant",
        )
        assert found["usage"]["input_tokens"] == 3
        assert found["usage"]["output_tokens"] == 3
        assert scene.seen[0] == {"role": "system", "content": "Be brief."}

    def test_a_stream_of_text_and_a_call(self, scene: Scene) -> None:
        scene.play(f"Let me see. {CALL}")
        body = {**MESSAGE, "tools": [TOOL]}
        whole = scene.post("/v1/messages", **body)
        assert [block["type"] for block in whole["content"]] == ["text", "tool_use"]
        assert whole["content"][1]["input"] == {"city": "Paris"}
        assert whole["stop_reason"] == "tool_use"
        events = named_events(scene.server.http.post("/v1/messages", json=body | {"stream": True}))
        kinds = [event["type"] for event in events]
        assert kinds[0] == "message_start"
        assert kinds[-2:] == ["message_delta", "message_stop"]
        assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        assert "".join(delta.get("text", "") for delta in deltas) == "Let me see. "
        parts = "".join(delta.get("partial_json", "") for delta in deltas)
        assert json.loads(parts) == {"city": "Paris"}
        assert events[-2]["delta"]["stop_reason"] == "tool_use"

    def test_a_turn_with_a_result(self, scene: Scene) -> None:
        scene.play("It rains.")
        call = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]}
        thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
        turns = [
            *MESSAGES,
            {"role": "assistant", "content": [thought, {"type": "text", "text": "I look."}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
        ]
        scene.post("/v1/messages", **MESSAGE | {"messages": turns}, tools=[TOOL])
        _, called, answered, user = scene.seen
        assert called["content"] == "I look."
        assert called["reasoning_content"] == "Hm."
        assert called["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Paris"}}
        assert answered == {"role": "tool", "tool_call_id": "t1", "content": "rain"}
        assert user == {"role": "user", "content": "And?"}

    def test_settings(self, scene: Scene) -> None:
        engine = scene.play("x", reason="length")
        settings: dict[str, Any] = {"top_k": 3, "seed": 5, "logit_bias": {"7": -100}, "temperature": 0.5}
        found = scene.post("/v1/messages", **MESSAGE, **settings, stop_sequences=["END"])
        assert found["stop_reason"] == "max_tokens"
        (asked,) = engine.requests
        assert (asked.sampling.top_k, asked.sampling.seed, asked.max_new_tokens) == (3, 5, 20)
        assert asked.sampling.biases == ((7, -100.0),)
        assert asked.stop == ("END",)

    def test_the_stop_string_is_named(self, scene: Scene) -> None:
        scene.play("Rain", stop="END")
        for stream in (False, True):
            response = scene.server.http.post("/v1/messages", json=MESSAGE | {"stream": stream})
            found = named_events(response)[-2]["delta"] if stream else response.json()
            assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", "END")

    def test_which_stop_strings_count(self, scene: Scene) -> None:
        """Its own name of the field wins over vLLM's."""
        engine = scene.play("x")
        scene.post("/v1/messages", **MESSAGE, stop_sequences=["A"], stop="B")
        scene.post("/v1/messages", **MESSAGE, stop="B")
        assert [request.stop for request in engine.requests] == [("A",), ("B",)]

    def test_blocks(self, scene: Scene) -> None:
        """Of a conversation: images, reasoning that is hidden, and nothing."""
        image = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        blocks = [{"type": "text", "text": "See"}, {"type": "image", "source": image}]
        blocks.append({"type": "image", "source": {"type": "url", "url": "data:image/gif;base64,BBBB"}})
        turns: list[Any] = [
            *({"role": "user", "content": blocks}, {"role": "assistant", "content": []}),
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]},
        ]
        body = PromptBody.model_validate({"messages": turns, "system": "Be brief."})
        system, user, *others = to_chat(body).messages
        assert (system.role, system.content) == ("system", "Be brief.")
        assert isinstance(user.content, list)
        urls = [part.image_url.url if part.image_url else part.text for part in user.content]
        assert urls == ["See", "data:image/png;base64,AAAA", "data:image/gif;base64,BBBB"]
        assert [(turn.role, turn.content) for turn in others] == [("assistant", "")]

    def test_formats(self, scene: Scene) -> None:
        """Both names of the field."""
        schema = {"type": "object", "properties": {"a": {"const": 1}}}
        format = {"type": "json_schema", "schema": schema}
        for asked in ({"output_format": format}, {"output_config": {"format": format, "effort": "low"}}):
            body = PromptBody.model_validate({"messages": MESSAGES, **asked})
            found = to_chat(body).response_format
            assert found is not None
            assert found.json_schema is not None
            assert (found.type, found.json_schema.schema_) == ("json_schema", schema)

    def test_two_calls(self, scene: Scene) -> None:
        """Each has its own arguments."""
        scene.play(CALL + CALL.replace("Paris", "Rome"))
        found = scene.post("/v1/messages", **MESSAGE, tools=[TOOL])
        assert [block["input"] for block in found["content"]] == [{"city": "Paris"}, {"city": "Rome"}]

    @pytest.mark.parametrize(
        ("thinking", "thinks"),
        [(None, False), ("disabled", False), ("enabled", True), ("adaptive", True)],
    )
    def test_thinking(self, scene: Scene, thinking: str | None, thinks: bool) -> None:
        """A model reasons only if it is asked to, as with Anthropic."""
        asked = {"thinking": {"type": thinking}} if thinking else {}
        scene.play("x")
        scene.post("/v1/messages", **MESSAGE | asked)
        assert scene.model.conversations[-1]["enable_thinking"] is thinks

    @pytest.mark.parametrize(
        ("choice", "forced"),
        [({"type": "any"}, True), ({"type": "tool", "name": "weather"}, True), ({"type": "auto"}, False)],
    )
    def test_tool_choice(self, scene: Scene, choice: dict[str, Any], forced: bool) -> None:
        engine = scene.play('{"name": "weather", "arguments": {"city": "Rome"}}')
        found = scene.post("/v1/messages", **MESSAGE, tools=[TOOL], tool_choice=choice)
        assert engine.requests[0].grammar is not None
        assert (found["content"][0]["type"] == "tool_use") == forced

    @pytest.mark.parametrize(("disabled", "count"), [(None, 2), (False, 2), (True, 1)])
    def test_parallel_tool_use(self, scene: Scene, disabled: bool | None, count: int) -> None:
        scene.play(CALL * 2)
        choice = {"type": "auto"} | ({} if disabled is None else {"disable_parallel_tool_use": disabled})
        found = scene.post("/v1/messages", **MESSAGE, tools=[TOOL], tool_choice=choice)
        assert [block["type"] for block in found["content"]] == ["tool_use"] * count

    def test_an_answer_that_is_begun(self, scene: Scene) -> None:
        """The answer goes on with the last message, and has only what is new."""
        begun = [*MESSAGES, {"role": "assistant", "content": "It is"}]
        for messages, goes_on in ((MESSAGES, False), (begun, True)):
            scene.play(" warm.")
            found = scene.post("/v1/messages", **MESSAGE | {"messages": messages})
            assert found["content"] == [{"type": "text", "text": " warm."}]
            assert scene.model.conversations[-1]["continue_final_message"] is goes_on

    def test_count_tokens(self, scene: Scene) -> None:
        found = scene.post("/v1/messages/count_tokens", model=NAME, messages=MESSAGES, tools=[TOOL])
        assert found == {"input_tokens": 3}

    @pytest.mark.parametrize(
        ("change", "status", "kind"),
        [
            ({"model": "claude"}, 404, "not_found_error"),
            ({"max_tokens": None}, 400, "invalid_request_error"),
            ({"messages": [{"role": "king", "content": "a"}]}, 400, "invalid_request_error"),
            ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error"),
            ({"tempreature": 1}, 400, "invalid_request_error"),
        ],
        ids=str,
    )
    def test_errors(self, scene: Scene, change: dict[str, Any], status: int, kind: str) -> None:
        found = scene.post("/v1/messages", status, **MESSAGE | change)
        assert found["type"] == "error"
        assert found["error"]["type"] == kind
        assert found["error"]["message"]

    def test_errors_behind_a_prefix(self, scene: Scene) -> None:
        """A proxy may hand on a part of the path as the application's own."""
        client = TestClient(scene.server.app, "http://127.0.0.1", root_path="/models")
        for route, key in (("/v1/messages", "type"), ("/v1/chat/completions", "error")):
            found = client.post(f"/models{route}", json=MESSAGE | {"model": "claude"})
            assert (found.status_code, next(iter(found.json()))) == (404, key)

    def test_server_tools(self, scene: Scene) -> None:
        tool = {"type": "web_search_20250305", "name": "web_search"}
        found = scene.post("/v1/messages", 400, **MESSAGE, tools=[tool])
        assert "no tools of its own, such as web_search_20250305" in found["error"]["message"]

    @pytest.mark.parametrize("value", [5, True, "text", ["text"], [["text"]], {"a": 1}], ids=str)
    def test_values_of_another_type(self, scene: Scene, value: Any) -> None:
        result = {"type": "tool_result", "tool_use_id": "a", "content": value}
        changes: list[dict[str, Any]] = [{"output_config": {"format": value}}]
        if not isinstance(value, str):
            changes.append({"messages": [{"role": "user", "content": [result]}]})
        for change in changes:
            found = scene.post("/v1/messages", 400, **MESSAGE | change)
            assert found["error"]["type"] == "invalid_request_error"

    def test_an_error_in_a_stream(self, scene: Scene) -> None:
        scene.play("Once", error=RuntimeError("a secret"))
        events = named_events(scene.server.http.post("/v1/messages", json=MESSAGE | {"stream": True}))
        assert events[-1]["error"]["type"] == "api_error"
        assert "secret" not in str(events)

    def test_its_own_header_of_a_key(self, stories: LLM) -> None:
        with running(ScriptedEngine(stories, lambda _: Script(["x"])), api_keys=["right"]) as server:
            for key, status in (("right", 200), ("wrong", 401)):
                response = server.http.post("/v1/messages", json=MESSAGE, headers={"x-api-key": key})
                assert response.status_code == status
                both = {"x-api-key": "wrong", "Authorization": f"bearer {key}"}  # which wins
                assert server.http.post("/v1/messages", json=MESSAGE, headers=both).status_code == status


class TestResponses:
    def test_text(self, scene: Scene) -> None:
        scene.play("Rain, all day.")
        found = scene.post("/v1/responses", model=NAME, input="How is it?", instructions="Be brief.")
        assert found["status"] == "completed"
        (item,) = found["output"]
        assert item["content"] == [
            {"type": "output_text", "text": "Rain, all day.", "annotations": [], "logprobs": []}
        ]
        assert found["usage"]["total_tokens"] == 6
        assert [message["role"] for message in scene.seen] == ["system", "user"]

    def test_the_official_client(self, scene: Scene) -> None:
        client = openai_client(scene.server)
        scene.play(f"Let me see. {CALL}")
        tools: Any = [FUNCTION]
        whole = client.responses.create(model=NAME, input="Weather?", tools=tools)
        assert whole.output_text == "Let me see. "
        assert whole.output[1].type == "function_call"
        assert json.loads(whole.output[1].arguments) == {"city": "Paris"}
        events = list(client.responses.create(model=NAME, input="Weather?", tools=tools, stream=True))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        kinds = [event.type for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-1] == "response.completed"
        assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 2
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert text == whole.output_text
        last = events[-1]
        assert last.type == "response.completed"
        assert [item.type for item in last.response.output] == ["message", "function_call"]

    def test_a_previous_response(self, scene: Scene) -> None:
        scene.play(CALL)
        first = scene.post("/v1/responses", model=NAME, input="Weather?", tools=[FUNCTION], instructions="A")
        call = first["output"][0]
        scene.play("Rain.")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        body: dict[str, Any] = {"model": NAME, "previous_response_id": first["id"], "tools": [FUNCTION]}
        scene.post("/v1/responses", **body, input=[result], instructions="B")
        assert [message["role"] for message in scene.seen] == ["system", "user", "assistant", "tool"]
        assert scene.seen[0]["content"] == "B"
        assert scene.seen[2]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
        unstored = scene.post("/v1/responses", model=NAME, input="a", store=False)
        for id in ("resp_none", unstored["id"]):
            found = scene.post("/v1/responses", 404, model=NAME, input="a", previous_response_id=id)
            assert found["error"]["code"] == "previous_response_not_found"

    def test_stored_responses_by_the_official_client(self, scene: Scene) -> None:
        client = openai_client(scene.server)
        scene.play("Rain.")
        first = client.responses.create(model=NAME, input="Weather?", instructions="Be brief.")
        assert client.responses.retrieve(first.id) == first
        scene.play("Yes.")
        asked: Any = [{"role": "user", "content": "Is that so?"}]
        stream = client.responses.create(
            model=NAME, input=asked, previous_response_id=first.id, stream=True, max_output_tokens=5
        )
        second = list(stream)[-1].response  # type: ignore[union-attr]  # it has one
        assert client.responses.retrieve(second.id) == second
        page: Any = client.responses.input_items.list(second.id, order="asc", limit=2)
        assert (page.has_more, [item.content[0].text for item in page.data]) == (True, ["Weather?", "Rain."])
        items: list[Any] = list(client.responses.input_items.list(second.id, limit=2))
        assert [item.role for item in items] == ["user", "assistant", "user"]
        assert items[0].content[0].text == "Is that so?"
        client.responses.delete(first.id)
        for method in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
            with pytest.raises(openai.NotFoundError, match="there is no response"):
                method(first.id)
        client.responses.create(model=NAME, input="So?", previous_response_id=second.id)
        assert [turn["content"] for turn in scene.seen] == ["Weather?", "Rain.", "Is that so?", "Yes.", "So?"]

    def test_what_was_asked_is_repeated(self, scene: Scene) -> None:
        scene.play("x")
        asked: dict[str, Any] = {"instructions": "A", "max_output_tokens": 5, "temperature": 0.5}
        asked |= {"top_p": 0.5, "user": "me", "metadata": {"a": "b"}, "top_logprobs": 2}
        asked |= {"service_tier": "auto", "reasoning": {"effort": "low"}, "tools": [FUNCTION]}
        asked |= {"parallel_tool_calls": False, "tool_choice": "none", "truncation": "auto", "store": True}
        found = scene.post("/v1/responses", model=NAME, input="a", **asked)
        assert found["tools"][0]["name"] == "weather"
        assert {name: found[name] for name in asked} == asked | {"tools": found["tools"]}
        plain = scene.post("/v1/responses", model=NAME, input="a")
        defaults = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "store": True}
        defaults |= {"truncation": "disabled", "text": {"format": {"type": "text"}}, "background": False}
        defaults |= dict.fromkeys(("instructions", "temperature", "metadata", "error", "top_logprobs"))
        assert {name: plain[name] for name in defaults} == defaults

    def test_items_of_one_turn_are_joined(self, scene: Scene) -> None:
        scene.play("x")
        parts = [{"type": "output_text", "text": "I"}, {"type": "refusal", "refusal": " will"}]
        turn: dict[str, Any] = {"role": "assistant", "content": parts}
        scene.post("/v1/responses", model=NAME, input=[turn, turn | {"content": " not."}])
        assert [(message["role"], message["content"]) for message in scene.seen] == [
            ("assistant", "I will not.")
        ]

    def test_errors_count_the_items_of_this_input(self, scene: Scene) -> None:
        first = scene.post("/v1/responses", model=NAME, input="a")
        body = {"model": NAME, "previous_response_id": first["id"], "input": [{"role": "user"}]}
        response = scene.server.http.post("/v1/responses", json=body)
        assert error(response, 400)["param"] == "input.0"

    def test_logprobs(self, server: Running) -> None:
        """Where they are included, or their number is stated; those of the stream are those of the whole."""
        body = {"model": NAME, "input": "Once upon a time", "max_output_tokens": 3}
        for more, count in (({"include": ["message.output_text.logprobs"]}, 0), ({"top_logprobs": 2}, 2)):
            whole = server.http.post("/v1/responses", json=body | more).json()
            entries = whole["output"][0]["content"][0]["logprobs"]
            assert [len(entry["top_logprobs"]) for entry in entries] == [count] * 3
            events = named_events(server.http.post("/v1/responses", json=body | more | {"stream": True}))
            deltas = [event for event in events if event["type"] == "response.output_text.delta"]
            assert [entry["token"] for event in deltas for entry in event["logprobs"]] == [
                entry["token"] for entry in entries
            ]
            assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] != []

    @pytest.mark.parametrize(
        ("query", "param"),
        [("?stream=true", "stream"), ("/input_items?limit=0", "limit"), ("/input_items?order=x", "order"),
         ("/input_items?after=x", "after")],
    )  # fmt: skip
    def test_bad_queries(self, scene: Scene, query: str, param: str) -> None:
        id = scene.post("/v1/responses", model=NAME, input="a")["id"]
        assert error(scene.server.http.get(f"/v1/responses/{id}{query}"), 400)["param"] == param

    def test_items(self, scene: Scene) -> None:
        scene.play("x")
        items = [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
            {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ]
        scene.post("/v1/responses", model=NAME, input=items)
        _, turn, result = scene.seen
        assert (turn["content"], turn["reasoning_content"]) == ("I look.", "Hm.")
        assert [call["id"] for call in turn["tool_calls"]] == ["c1", "c2"]
        assert result["tool_call_id"] == "c1"

    def test_formats_and_settings(self, scene: Scene) -> None:
        engine = scene.play("{}", reason="length")
        schema = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
        body: dict[str, Any] = {"model": NAME, "input": "a", "max_output_tokens": 7, "seed": 3}
        found = scene.post("/v1/responses", **body, text={"format": schema}, reasoning={"effort": "low"})
        assert found["status"] == "incomplete"
        assert found["incomplete_details"] == {"reason": "max_output_tokens"}
        (asked,) = engine.requests
        assert asked.grammar is not None
        assert (asked.max_new_tokens, asked.sampling.seed) == (7, 3)
        assert scene.model.conversations[-1]["reasoning_effort"] == "low"

    @pytest.mark.parametrize(
        "change",
        [
            {"input": [{"type": "item_reference"}]},
            {"input": 5},
            {"background": True},
            {"tools": [{"type": "web_search"}]},
        ],
        ids=str,
    )
    def test_errors(self, scene: Scene, change: dict[str, Any]) -> None:
        body = {"model": NAME, "input": "a"} | change
        error(scene.server.http.post("/v1/responses", json=body), 400)


class TestOllama:
    def test_chat(self, scene: Scene) -> None:
        scene.play(f"Let me see. {CALL}")
        body = {"model": f"{NAME}:latest", "messages": MESSAGES, "tools": [CHAT_TOOL]}
        whole = scene.post("/api/chat", **body, stream=False)
        assert whole["message"]["content"] == "Let me see. "
        assert whole["message"]["tool_calls"] == [
            {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
        ]
        assert (whole["done"], whole["done_reason"], whole["prompt_eval_count"]) == (True, "stop", 3)
        parts = (whole["prompt_eval_duration"], whole["eval_duration"])  # nanoseconds, as all of them
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(whole["total_duration"], abs=2)
        found = lines(scene.server.http.post("/api/chat", json=body))
        assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]
        assert "".join(line["message"]["content"] for line in found) == "Let me see. "
        calls = [call for line in found for call in line["message"].get("tool_calls", ())]
        assert calls == whole["message"]["tool_calls"]

    def test_a_call_comes_before_the_text_behind_it(self, scene: Scene) -> None:
        scene.play(f"One. {CALL} Two.")
        body = {"model": NAME, "messages": MESSAGES, "tools": [CHAT_TOOL]}
        found = [line["message"] for line in lines(scene.server.http.post("/api/chat", json=body))]
        said = ["call" if "tool_calls" in message else message["content"] for message in found]
        assert "".join(said) == "One. call Two."

    def test_no_time_of_an_empty_answer_is_negative(self, scene: Scene) -> None:
        scene.play("")
        found = scene.post("/api/chat", model=NAME, messages=MESSAGES, stream=False)
        assert found["eval_duration"] == 0

    def test_generate(self, scene: Scene) -> None:
        engine = scene.play("Once upon", reason="length")
        options: dict[str, Any] = {
            "num_predict": 9,
            "seed": 4,
            "repeat_penalty": 1.5,
            "num_ctx": 99,
            "stop": ["END"],
        }
        body: dict[str, Any] = {"model": NAME, "prompt": "Hi", "system": "Be brief.", "options": options}
        found = lines(scene.server.http.post("/api/generate", json=body))
        assert "".join(line["response"] for line in found) == "Once upon"
        assert found[-1]["done_reason"] == "length"
        (asked,) = engine.requests
        assert (asked.max_new_tokens, asked.sampling.seed, asked.sampling.repetition_penalty) == (9, 4, 1.5)
        assert asked.stop == ("END",)
        assert [message["role"] for message in scene.seen] == ["system", "user"]
        raw = scene.post("/api/generate", **body | {"raw": True, "stream": False, "format": "json"})
        assert raw["response"] == "Once upon"
        assert engine.requests[-1].grammar is not None

    def test_options(self, scene: Scene) -> None:
        """Those that other APIs have too, under ollama's names; a negative length is no limit."""
        engine = scene.play("x")
        drawing: dict[str, Any] = {"temperature": 0.5, "top_p": 0.6, "top_k": 7, "min_p": 0.1, "seed": 3}
        drawing |= {"presence_penalty": 0.2, "frequency_penalty": 0.3}
        options = drawing | {"repeat_penalty": 1.5, "num_predict": -1}
        for raw in (False, True):
            scene.post("/api/generate", model=NAME, prompt="a", options=options, stream=False, raw=raw)
            asked = engine.requests[-1]
            assert {name: getattr(asked.sampling, name) for name in drawing} == drawing
            assert asked.sampling.repetition_penalty == 1.5
            assert asked.max_new_tokens == Limits().new_tokens

    @pytest.mark.parametrize(
        ("think", "seen"),
        [
            (None, {}),
            (False, {"enable_thinking": False}),
            ("low", {"enable_thinking": True, "reasoning_effort": "low"}),
        ],
        ids=str,
    )
    def test_thinking(self, scene: Scene, think: Any, seen: dict[str, Any]) -> None:
        scene.play("x")
        scene.post("/api/chat", model=NAME, messages=MESSAGES, think=think, stream=False)
        found = scene.model.conversations[-1]
        names = ("enable_thinking", "reasoning_effort")
        assert {name: found[name] for name in names if name in found} == seen

    def test_a_call_and_its_result(self, scene: Scene) -> None:
        scene.play("Rain.")
        call = {"function": {"name": "weather", "arguments": {"city": "Rome"}}}
        turns = [
            {"role": "assistant", "thinking": "Hm.", "tool_calls": [call]},
            {"role": "tool", "tool_name": "weather", "content": "rain"},
        ]
        scene.post("/api/chat", model=NAME, messages=[*MESSAGES, *turns], stream=False)
        _, called, result = scene.seen
        assert called["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Rome"}}
        assert called["reasoning_content"] == "Hm."
        assert (result["name"], result["content"]) == ("weather", "rain")
        scene.play(CALL)
        body: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "tools": [CHAT_TOOL], "stream": False}
        assert scene.post("/api/chat", **body)["done_reason"] == "stop"  # ollama has no reason for calls

    def test_models(self, scene: Scene) -> None:
        (found,) = scene.server.http.get("/api/tags").json()["models"]
        assert found["name"] == NAME
        shown = scene.post("/api/show", model=NAME)
        assert shown["capabilities"] == ["completion", "tools"]
        assert shown["model_info"]["pteron.context_length"] == 256
        assert scene.server.http.get("/api/version").json()["version"]
        assert scene.post("/api/chat", model=NAME)["done_reason"] == "load"

    def test_errors(self, scene: Scene) -> None:
        assert "no model" in scene.post("/api/chat", 404, model="llama3", messages=MESSAGES)["error"]
        assert (
            "temperature"
            in scene.post("/api/generate", 400, model=NAME, prompt="a", options={"temperature": 9})["error"]
        )
        assert "format" in scene.post("/api/generate", 400, model=NAME, prompt="a", format="xml")["error"]
        body = {"model": NAME, "prompt": "a", "options": {"num_predict": "20"}}
        assert "num_predict" in scene.post("/api/generate", 400, **body)["error"]
        response = scene.server.http.post("/api/generate", content=f'{{"model": "{NAME}", "prompt": NaN}}')
        assert response.json()["error"] == "the body is not JSON: NaN is not a finite number"
        scene.play("Once", error=RuntimeError("a secret"))
        assert (
            "error"
            in lines(scene.server.http.post("/api/chat", json={"model": NAME, "messages": MESSAGES}))[-1]
        )


class TestTokens:
    def test_there_and_back(self, server: Running) -> None:
        post = server.http.post
        found = post("/tokenize", json={"model": NAME, "prompt": "Once upon a time"}).json()
        assert found["tokens"] == list(server.engine.llm.encode("Once upon a time"))
        assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), 256)
        plain = post("/tokenize", json={"content": "Once upon a time", "add_special": False}).json()
        assert plain["tokens"] == found["tokens"][1:]
        back = post("/detokenize", json={"tokens": plain["tokens"]}).json()
        assert back == {"prompt": "Once upon a time", "content": "Once upon a time"}
        pieces = post("/tokenize", json={"content": "Hi", "with_pieces": True}).json()["tokens"]
        assert pieces[0] == {"id": 1, "piece": "<s>"}
        for adds in ({"add_special_tokens": False}, {"add_special_tokens": True, "add_special": False}):
            named = post("/tokenize", json={"prompt": "Hi", "return_token_strs": True, **adds}).json()
            assert named["tokens"] == [each["id"] for each in pieces[1:]]
            assert named["token_strs"] == [each["piece"] for each in pieces[1:]]
        assert post("/tokenize", json={"prompt": "", "add_special_tokens": False}).json()["tokens"] == []

    def test_conversations(self, server: Running) -> None:
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        for route in ("/apply_template", "/apply-template"):
            assert server.http.post(route, json=body).json() == {"prompt": "User: Hi\nAssistant:"}
        ids = server.http.post("/tokenize", json=body).json()["tokens"]
        assert ids == list(server.engine.llm.encode_chat(body["messages"]))
        ended = server.http.post("/apply_template", json=body | {"add_generation_prompt": False}).json()
        assert ended == {"prompt": "User: Hi\n"}

    @pytest.mark.parametrize(
        ("route", "body"),
        [
            ("/tokenize", {}),
            ("/tokenize", {"prompt": "a", "content": "b"}),
            ("/tokenize", {"prompt": "word " * 3000}),
            ("/detokenize", {"tokens": [-1]}),
            ("/detokenize", {"tokens": [99999]}),
        ],
        ids=str,
    )
    def test_errors(self, server: Running, route: str, body: dict[str, Any]) -> None:
        error(server.http.post(route, json=body), 400)


def test_tokens_that_were_in_the_cache(scene: Scene) -> None:
    """Of three tokens of a prompt, in each API."""
    scene.play("x", reused=2)
    chat = scene.post("/v1/chat/completions", model=NAME, messages=MESSAGES)["usage"]
    assert (chat["prompt_tokens"], chat["prompt_tokens_details"]["cached_tokens"]) == (3, 2)
    usage = scene.post("/v1/messages", **MESSAGE)["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (1, 2, 1)
    usage = scene.post("/v1/responses", model=NAME, input="a")["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (3, 2)
    whole = scene.post("/api/chat", model=NAME, messages=MESSAGES, stream=False)
    assert whole["prompt_eval_count"] == 3


@pytest.mark.parametrize(
    "format",
    [
        {"response_format": {"type": "grammar", "syntax": "regex", "definition": "(yes|no)"}},
        {"response_format": {"type": "grammar", "syntax": "lark", "definition": 'start: "yes" | "no"'}},
        {"structured_outputs": {"regex": "(yes|no)"}},
        {"structured_outputs": {"grammar": 'start: "yes" | "no"'}},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"structured_outputs": {"json": {"enum": ["yes", "no"]}}},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "route", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"]
)
def test_grammars(server: Running, route: str, format: dict[str, Any]) -> None:
    pytest.importorskip("llguidance", reason="needs the extra `serve`")
    if route in ("/v1/messages", "/v1/responses") and "response_format" in format:
        format = {"structured_outputs": {"regex": "(yes|no)"}}
        if route == "/v1/responses":
            format = {"text": {"format": {"type": "grammar", "syntax": "regex", "definition": "(yes|no)"}}}
    given: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 8}
    given |= {"prompt": "Is it? "} if route == "/v1/completions" else {}
    if route == "/v1/completions":
        del given["messages"]
    if route == "/v1/responses":
        given = {"input": "Is it?", "max_output_tokens": 8}
    response = server.http.post(route, json={"model": NAME, **given, **format})
    assert response.status_code == 200, response.text
    found = response.json()
    if route == "/v1/responses":
        text = found["output"][0]["content"][0]["text"]
    elif route == "/v1/messages":
        text = found["content"][0]["text"]
    else:
        text = found["choices"][0].get("text") or found["choices"][0]["message"]["content"]
    assert text.strip('"') in ("yes", "no")


@pytest.mark.parametrize(
    "format",
    [
        {"response_format": {"type": "grammar", "syntax": "regex"}},
        {"response_format": {"type": "grammar", "syntax": "regex", "definition": "("}},
        {"structured_outputs": {}},
        {"structured_outputs": {"regex": "a", "choice": ["a"]}},
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
    ],
    ids=str,
)
def test_wrong_grammars(server: Running, format: dict[str, Any]) -> None:
    body = {"model": NAME, "messages": MESSAGES, **format}
    found = error(server.http.post("/v1/chat/completions", json=body), 400)
    assert found["param"] in ("response_format", "structured_outputs")
