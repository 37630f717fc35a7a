"""Clients of other projects, each as its documentation shows it, against a server. A client that is not
installed is skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from http_fixtures import NAME, Running, running
from pydantic import BaseModel
from scripted import Script, ScriptedEngine, ScriptedModel, play
from tool_fixtures import HERMES, MESSAGES, WEATHER

from pteron.llm import LLM

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
ANIMAL = '{"name": "Tom", "age": 3}'


class Animal(BaseModel):
    name: str
    age: int


def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: rain"


@pytest.fixture(scope="module")
def tools_server(stories: LLM) -> Iterator[Running]:
    """A server with scripted answers, whose model has a template with tools."""
    model = ScriptedModel.like(stories, HERMES)
    with running(ScriptedEngine(model, lambda _: Script(["x"]))) as server:
        yield server


def answer(server: Running, *texts: str) -> ScriptedEngine:
    """Let the server answer each request with the next text, the last one again and again."""
    left = list(texts)
    return play(server, lambda _: Script(list(left.pop(0) if len(left) > 1 else left[0])))


def test_anthropic(tools_server: Running) -> None:
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=tools_server.address, api_key="none", max_retries=0)
    asked: Any = {"model": NAME, "max_tokens": 100, "messages": MESSAGES}
    tools = [{"name": "weather", "input_schema": WEATHER}]
    answer(tools_server, f"Let me see. {CALL}")
    message = client.messages.create(**asked, tools=tools)
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.content[1].input == {"city": "Paris"}
    with client.messages.stream(**asked, tools=tools) as stream:
        assert "".join(stream.text_stream) == "Let me see. "
        final = stream.get_final_message()
    assert final.content[1].input == {"city": "Paris"}
    assert final.stop_reason == message.stop_reason == "tool_use"
    answer(tools_server, CALL, "It rains.")
    runner = client.beta.messages.tool_runner(**asked, tools=[anthropic.beta_tool(weather)])
    assert [message.content[0].type for message in runner] == ["tool_use", "text"]
    answer(tools_server, ANIMAL)
    assert client.messages.parse(**asked, output_format=Animal).parsed_output == Animal(name="Tom", age=3)
    counted = client.messages.count_tokens(model=NAME, messages=MESSAGES)
    assert counted.input_tokens == 3
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**asked | {"model": "claude"})


def test_ollama(tools_server: Running) -> None:
    ollama = pytest.importorskip("ollama")
    client = ollama.Client(host=tools_server.address)
    answer(tools_server, f"Let me see. {CALL}")
    tool = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
    found = client.chat(model=NAME, messages=MESSAGES, tools=[tool])
    assert found.message.content == "Let me see. "
    assert found.message.tool_calls[0].function.arguments == {"city": "Paris"}
    answer(tools_server, "Once upon a time")
    parts = client.generate(model=NAME, prompt="Hi", stream=True, options={"num_predict": 20})
    assert "".join(part.response for part in parts) == "Once upon a time"
    assert [model.model for model in client.list().models] == [NAME]
    assert [model.model for model in client.ps().models] == [NAME]
    assert client.show(NAME).capabilities == ["completion", "tools"]
    answer(tools_server, ANIMAL)
    found = client.chat(model=NAME, messages=MESSAGES, format=Animal.model_json_schema())
    assert Animal.model_validate_json(found.message.content).name == "Tom"
    with pytest.raises(ollama.ResponseError, match="no model"):
        client.chat(model="llama3", messages=MESSAGES)


def test_litellm(tools_server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise it looks for prices in the network
    litellm = pytest.importorskip("litellm")
    answer(tools_server, "Rain.")
    settings = {"model": f"openai/{NAME}", "api_base": f"{tools_server.address}/v1", "api_key": "none"}
    assert litellm.completion(**settings, messages=MESSAGES).choices[0].message.content == "Rain."
    parts = litellm.completion(**settings, messages=MESSAGES, stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "Rain."


def test_langchain(tools_server: Running) -> None:
    langchain = pytest.importorskip("langchain_openai")
    chat = langchain.ChatOpenAI(base_url=f"{tools_server.address}/v1", api_key="none", model=NAME)
    answer(tools_server, "Rain.")
    assert chat.invoke("Weather?").content == "Rain."
    assert "".join(part.content for part in chat.stream("Weather?")) == "Rain."
    tool = {"type": "function", "function": {"name": "weather", "description": "", "parameters": WEATHER}}
    answer(tools_server, CALL)
    (call,) = chat.bind_tools([tool]).invoke("Weather?").tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Paris"})
    answer(tools_server, ANIMAL)
    assert chat.with_structured_output(Animal, method="json_schema").invoke("Who?").name == "Tom"


def test_langchain_agent(tools_server: Running) -> None:
    langchain = pytest.importorskip("langchain_openai")
    agents = pytest.importorskip("langchain.agents")
    chat = langchain.ChatOpenAI(base_url=f"{tools_server.address}/v1", api_key="none", model=NAME)
    answer(tools_server, CALL, "It rains.")
    found = agents.create_agent(model=chat, tools=[weather]).invoke({"messages": MESSAGES})["messages"]
    assert [message.content for message in found[-2:]] == ["Paris: rain", "It rains."]


def test_openai_agents(tools_server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = pytest.importorskip("agents")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{tools_server.address}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="Weather", model=NAME, tools=[agents.function_tool(weather)])
    answer(tools_server, CALL, "It rains.")
    assert agents.Runner.run_sync(agent, "Weather in Paris?").final_output == "It rains."


def test_instructor(tools_server: Running) -> None:
    instructor = pytest.importorskip("instructor")
    import openai

    client = openai.OpenAI(base_url=f"{tools_server.address}/v1", api_key="none", max_retries=0)
    answer(tools_server, '{"name": "Animal", "arguments": ' + ANIMAL + "}")
    found = instructor.from_openai(client).chat.completions.create(
        model=NAME, messages=MESSAGES, response_model=Animal, max_retries=0
    )
    assert (found.name, found.age) == ("Tom", 3)


def test_pydantic_ai(tools_server: Running) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    asked: list[str] = []

    def weather(city: str) -> str:
        asked.append(city)
        return "rain"

    provider = providers.OpenAIProvider(base_url=f"{tools_server.address}/v1", api_key="none")
    agent = pydantic_ai.Agent(models.OpenAIChatModel(NAME, provider=provider), tools=[weather])
    engine = answer(tools_server, CALL, "It rains.")
    assert agent.run_sync("Weather in Paris?").output == "It rains."
    assert asked == ["Paris"]
    assert len(engine.requests) == 2
    answer(tools_server, '{"name": "final_result", "arguments": ' + ANIMAL + "}")
    typed = pydantic_ai.Agent(models.OpenAIChatModel(NAME, provider=provider), output_type=Animal)
    assert typed.run_sync("Who?").output == Animal(name="Tom", age=3)


def test_llm(tools_server: Running) -> None:
    models = pytest.importorskip("llm.default_plugins.openai_models")
    answer(tools_server, "Rain.")
    base = f"{tools_server.address}/v1"
    model = models.Chat(model_id=NAME, model_name=NAME, api_base=base, supports_schema=True)
    model.key = "none"
    assert model.prompt("Weather?").text() == "Rain."
    answer(tools_server, ANIMAL)
    assert Animal.model_validate_json(model.prompt("Who?", schema=Animal).text()).name == "Tom"


def test_openai_parse(tools_server: Running) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{tools_server.address}/v1", api_key="none", max_retries=0)
    answer(tools_server, ANIMAL)
    chat = client.chat.completions.parse(
        model=NAME, messages=MESSAGES, response_format=Animal, verbosity="low", max_tokens=32_000
    )
    assert chat.choices[0].message.parsed == Animal(name="Tom", age=3)
    found = client.responses.parse(model=NAME, input="Who?", text_format=Animal)
    assert found.output_parsed == Animal(name="Tom", age=3)
    tool = {"type": "function", "name": "weather", "parameters": WEATHER}
    answer(tools_server, f"Let me see. {CALL}")
    with client.responses.stream(model=NAME, input="Weather?", tools=[tool]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert json.loads(final.output[1].arguments) == {"city": "Paris"}
