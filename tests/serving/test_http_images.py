"""Images over HTTP: every API that has them gives the model the same prompt; what is no image is a 400."""

from __future__ import annotations

import base64
import gc
import json
import re
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors.numpy")
PIL = pytest.importorskip("PIL.Image")
pytest.importorskip("fastapi")

from http_fixtures import NAME, Running, error, openai_client, running  # noqa: E402
from image_checkpoints import ImageGolden, picture  # noqa: E402

from pteron.llm import LLM  # noqa: E402
from pteron.llm.engine.running import RunningRequest  # noqa: E402
from pteron.llm.export import export_llm  # noqa: E402
from pteron.llm.images.load import load_part  # noqa: E402
from pteron.llm.text_model import TextModel  # noqa: E402
from pteron.serving.api.schema import ChatBody  # noqa: E402
from pteron.serving.http import disconnect  # noqa: E402
from pteron.serving.http.limits import Limits  # noqa: E402
from pteron.serving.prompt.encoding import render_chat  # noqa: E402


def base64_of(width: int, height: int, kind: str = "PNG") -> str:
    file = BytesIO()
    PIL.fromarray(picture(width, height)).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def url_of(width: int, height: int) -> str:
    return f"data:image/png;base64,{base64_of(width, height)}"


def image(width: int, height: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url_of(width, height), "detail": "auto"}}


DATA = base64_of(30, 20)
QUESTION = [image(30, 20), {"type": "text", "text": "What?"}]
CHAT: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": QUESTION}],
    "max_tokens": 8,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def vlm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = tmp_path_factory.mktemp("vlm")
    ImageGolden.load("smolvlm").write_folder(folder / "checkpoint")
    options: dict[str, Any] = {"quantize": None, "embedding_bits": None}
    options |= {"max_seq_len": 16, "max_context_len": 512}
    with LLM(export_llm(folder / "checkpoint", folder / "program", **options), sequences=4) as made:
        yield made


@pytest.fixture(scope="module")
def seeing(vlm: LLM) -> Iterator[Running]:
    with running(vlm, prompts=True) as made:
        yield made


@pytest.fixture(scope="module")
def expected(vlm: LLM) -> tuple[str, int]:
    """The answer to QUESTION, and the tokens of its prompt."""
    messages = [{"role": "user", "content": QUESTION}]
    text = "".join(piece.text for piece in vlm.chat(messages, max_new_tokens=8))
    return text, vlm.statistics.prompt_tokens


def test_openai_chat(seeing: Running, expected: tuple[str, int]) -> None:
    client = openai_client(seeing)
    answer = client.chat.completions.create(**CHAT)
    assert answer.choices[0].message.content == expected[0]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == expected[1]
    stream = client.chat.completions.create(**CHAT, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == expected[0]


def test_the_log_has_no_image_data(seeing: Running) -> None:
    seeing.http.post(seeing.address + "/v1/chat/completions", json=CHAT)
    seeing.settle()
    log = json.dumps(seeing.log())
    assert "data:image/png;base64," in log
    assert DATA not in log
    assert "characters)" in log


def test_openai_responses(seeing: Running, expected: tuple[str, int]) -> None:
    content = [{"type": "input_image", "image_url": url_of(30, 20), "detail": "auto"}]
    content += [{"type": "input_text", "text": "What?"}]
    client = openai_client(seeing)
    given: Any = [{"role": "user", "content": content}]
    first = client.responses.create(model=NAME, input=given, max_output_tokens=8, temperature=0)
    assert first.output_text == expected[0]
    assert first.usage is not None
    assert first.usage.input_tokens == expected[1]
    more = client.responses.create(
        model=NAME, input="And?", previous_response_id=first.id, max_output_tokens=8, temperature=0
    )
    assert more.usage is not None
    assert more.usage.input_tokens > expected[1]


def test_anthropic_messages(seeing: Running, expected: tuple[str, int]) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": DATA}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
    body = {"model": NAME, "messages": [{"role": "user", "content": content}]}
    answer = seeing.http.post(
        seeing.address + "/v1/messages", json={**body, "max_tokens": 8, "temperature": 0}
    ).json()
    assert answer["content"] == [{"type": "text", "text": expected[0]}]
    counted = seeing.http.post(seeing.address + "/v1/messages/count_tokens", json=body).json()
    assert counted == {"input_tokens": expected[1]}


def test_ollama(seeing: Running, expected: tuple[str, int]) -> None:
    options = {"temperature": 0, "num_predict": 8}
    message = {"role": "user", "content": "What?", "images": [DATA]}
    chat = {"model": NAME, "messages": [message], "stream": False, "options": options}
    answer = seeing.http.post(seeing.address + "/api/chat", json=chat).json()
    assert answer["message"]["content"] == expected[0]
    assert answer["prompt_eval_count"] == expected[1]
    text = {"model": NAME, "prompt": "What?", "images": [DATA], "stream": False, "options": options}
    assert seeing.http.post(seeing.address + "/api/generate", json=text).json()["response"] == expected[0]
    only = text | {"prompt": ""}
    found = seeing.http.post(seeing.address + "/api/generate", json=only).json()
    assert found["prompt_eval_count"] > 9  # not only loaded
    shown = seeing.http.post(seeing.address + "/api/show", json={"model": NAME}).json()
    assert "vision" in shown["capabilities"]


def test_tokens_of_images_are_counted(seeing: Running, vlm: LLM, expected: tuple[str, int]) -> None:
    found = seeing.http.post(
        seeing.address + "/tokenize", json={"model": NAME, "messages": CHAT["messages"]}
    ).json()
    assert found["count"] == expected[1]
    assert vlm.image_prefill is not None
    assert found["tokens"].count(vlm.image_prefill.token) > 9
    prompt = seeing.http.post(
        seeing.address + "/apply_template", json={"model": NAME, "messages": CHAT["messages"]}
    ).json()["prompt"]
    assert prompt == "<|im_start|>User:<image>What?<end_of_utterance>\nAssistant:"


def test_models_say_what_they_read(seeing: Running, server: Running) -> None:
    for each, modalities in ((seeing, ["text", "image"]), (server, ["text"])):
        card = each.http.get(each.address + "/v1/models").json()["data"][0]
        assert card["input_modalities"] == modalities


def test_several_choices_have_the_same_image(seeing: Running, expected: tuple[str, int]) -> None:
    answer = seeing.http.post(seeing.address + "/v1/chat/completions", json=CHAT | {"n": 3}).json()
    assert [choice["message"]["content"] for choice in answer["choices"]] == [expected[0]] * 3


def with_part(*parts: Any) -> dict[str, Any]:
    text = {"type": "text", "text": "What?"}
    return CHAT | {"messages": [{"role": "user", "content": [*parts, text]}]}


def with_url(url: Any) -> dict[str, Any]:
    return with_part({"type": "image_url", "image_url": {"url": url}})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (with_url("https://example.com/cat.png"), "addresses in prompts are not fetched"),
        (with_url("http://169.254.169.254/latest"), "addresses in prompts are not fetched"),
        (with_url("file:///etc/passwd"), "addresses in prompts are not fetched"),
        (with_url("/etc/passwd"), "is no data URL"),
        (with_url("data:image/png;base64,????"), "not valid base64"),
        (with_url("data:image/png;base64,aGVsbG8="), "it is no PNG, JPEG, WebP, GIF or BMP"),
        (with_url("data:image/svg+xml,<svg/>"), "must be in base64"),
        (with_url(url_of(40, 40)[:-400]), "image 1: the image cannot be read"),
        (with_url(None), "parts of type text, refusal or image_url"),
        (with_part({"type": "image_url"}), "parts of type text, refusal or image_url"),
        (with_part({"type": "image", "image": "/etc/passwd"}), "parts of type text, refusal or image_url"),
        (with_part({"type": "input_audio", "input_audio": {}}), "parts of type text, refusal or image_url"),
        (with_part(*[image(70, 70)] * 9), "images have"),
    ],
)
def test_what_is_no_image_is_a_400(seeing: Running, body: dict[str, Any], message: str) -> None:
    found = error(seeing.http.post(seeing.address + "/v1/chat/completions", json=body), 400)
    assert message in found["message"]


def test_more_images_than_the_context_holds(seeing: Running) -> None:
    """The code is that of long texts: the chat page then offers to leave out the oldest messages."""
    for path in ("/v1/chat/completions", "/tokenize", "/apply_template"):
        body = {"model": NAME, "messages": with_part(*[image(70, 70)] * 9)["messages"]}
        found = error(seeing.http.post(seeing.address + path, json=body), 400)
        assert found["code"] == "context_length_exceeded"
        assert re.search(r"first \d images have \d+ rows.* context holds 512 tokens", found["message"])


def test_a_text_may_have_the_token_of_images(seeing: Running, expected: tuple[str, int]) -> None:
    messages = [{"role": "user", "content": [*QUESTION, {"type": "text", "text": "<image>"}]}]
    body = {"model": NAME, "messages": messages}
    found = seeing.http.post(seeing.address + "/tokenize", json=body).json()
    assert found["count"] == expected[1] + 1
    shown = seeing.http.post(seeing.address + "/apply_template", json=body).json()["prompt"]
    assert shown == "<|im_start|>User:<image>What?<image><end_of_utterance>\nAssistant:"
    assert seeing.http.post(seeing.address + "/v1/chat/completions", json=CHAT | body).status_code == 200


def test_images_of_one_request_at_a_time_are_read(seeing: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may have 50 million pixels."""
    count, most = 0, 0

    def load(*arguments: Any) -> Any:
        nonlocal count, most
        count += 1
        most = max(most, count)
        time.sleep(0.05)
        count -= 1
        return load_part(*arguments)

    monkeypatch.setattr("pteron.llm.images.prompt.load_part", load)
    source = {"type": "base64", "media_type": "image/png", "data": DATA}
    block = {"role": "user", "content": [{"type": "image", "source": source}]}
    chat = {"model": NAME, "messages": CHAT["messages"]}
    bodies = {
        "/v1/chat/completions": CHAT,
        "/tokenize": chat,
        "/apply_template": chat,
        "/v1/messages/count_tokens": {"model": NAME, "messages": [block]},
        "/api/generate": {"model": NAME, "prompt": "What?", "images": [DATA], "stream": False},
    }
    with ThreadPoolExecutor(10) as pool:
        asked = [
            pool.submit(seeing.http.post, seeing.address + path, json=body)
            for path, body in bodies.items()
            for _ in range(2)
        ]
        assert {each.result().status_code for each in asked} == {200}
    assert most == 1


def test_no_further_image_is_read_for_a_client_that_left(vlm: LLM) -> None:
    body = ChatBody.model_validate(with_part(*[image(9, 9)] * 3))
    left = threading.Event()
    before = disconnect._has_left.set(left)
    read = vlm.read_images

    class Model:
        def __getattr__(self, name: str) -> Any:
            return getattr(vlm, name)

        def read_images(self, messages: Any) -> Iterator[Any]:
            for number, found in enumerate(read(messages)):
                assert number == 0
                left.set()
                yield found

    try:
        with pytest.raises(disconnect.ClientDisconnected):
            render_chat(Model(), body.messages, [], {}, Limits())  # type: ignore[arg-type]
    finally:
        disconnect._has_left.reset(before)


@pytest.mark.parametrize("stream", [True, False])
def test_images_are_freed_when_they_are_read(
    seeing: Running, vlm: LLM, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, alive = list[weakref.ref[Any]](), list[Any]()
    read, take = TextModel.read_images, RunningRequest.take

    def remember(*arguments: Any) -> Iterator[Any]:
        for found in read(*arguments):
            kept.append(weakref.ref(found))
            yield found

    def look(*arguments: Any) -> Any:
        gc.collect()
        alive.append([each() for each in kept if each() is not None])
        return take(*arguments)

    monkeypatch.setattr(TextModel, "read_images", remember)
    monkeypatch.setattr(RunningRequest, "take", look)
    body = with_part(image(31, 20)) | {"stream": stream, "max_tokens": 8}
    assert seeing.http.post(seeing.address + "/v1/chat/completions", json=body).status_code == 200
    assert len(kept) == 1
    assert alive[-1] == []


def test_a_model_without_a_vision_part(server: Running) -> None:
    found = error(server.http.post(server.address + "/v1/chat/completions", json=CHAT), 400)
    assert found["code"] == "no_images"
    assert found["message"] == f"{NAME} reads no images: it has no vision part"
    assert found["param"] == "messages.0.content"


def test_remote_images_of_other_apis(seeing: Running) -> None:
    address = "https://example.com/cat.png"
    source = {"type": "url", "url": address}
    turn = {"role": "user", "content": [{"type": "image", "source": source}]}
    found = seeing.http.post(
        seeing.address + "/v1/messages", json={"model": NAME, "max_tokens": 4, "messages": [turn]}
    )
    assert found.status_code == 400
    assert "addresses in prompts are not fetched" in found.text
    for part in ({"image_url": address}, {"file_id": "file-1"}):
        turn = {"role": "user", "content": [{"type": "input_image", **part}]}
        found = seeing.http.post(seeing.address + "/v1/responses", json={"model": NAME, "input": [turn]})
        assert found.status_code == 400
        assert json.loads(found.text)["error"]["message"]
    raw = {"model": NAME, "prompt": "What?", "images": [DATA], "raw": True}
    assert seeing.http.post(seeing.address + "/api/generate", json=raw).status_code == 400


def test_many_users_with_images(seeing: Running, vlm: LLM) -> None:
    bodies = [with_part(image(20 + number, 30)) for number in range(6)]
    alone = []
    for body in bodies:
        vlm.reset()
        alone.append(
            "".join(piece.text for piece in vlm.chat(body["messages"], max_new_tokens=8, temperature=0))
        )
    with ThreadPoolExecutor(6) as pool:
        found = list(
            pool.map(
                lambda body: seeing.http.post(seeing.address + "/v1/chat/completions", json=body).json(),
                bodies,
            )
        )
    assert [each["choices"][0]["message"]["content"] for each in found] == alone


# Clients of other projects, as their documentation sends images -------------------------------------


def test_the_client_of_anthropic(seeing: Running, expected: tuple[str, int]) -> None:
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=seeing.address, api_key="none", max_retries=0)
    source = {"type": "base64", "media_type": "image/png", "data": DATA}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
    asked: Any = {"model": NAME, "messages": [{"role": "user", "content": content}]}
    message = client.messages.create(**asked, max_tokens=8)
    assert message.content[0].text == expected[0]
    assert client.messages.count_tokens(**asked).input_tokens == expected[1]


def test_the_client_of_ollama(seeing: Running, expected: tuple[str, int], tmp_path: Path) -> None:
    ollama = pytest.importorskip("ollama")
    client = ollama.Client(host=seeing.address)
    file = tmp_path / "image.png"
    file.write_bytes(base64.b64decode(DATA))
    options = {"temperature": 0, "num_predict": 8}
    message = {"role": "user", "content": "What?", "images": [str(file)]}
    assert client.chat(NAME, [message], options=options).message.content == expected[0]
    found = client.generate(NAME, "What?", images=[file.read_bytes()], options=options)
    assert found.response == expected[0]
    assert "vision" in client.show(NAME).capabilities


def test_the_client_of_litellm(
    seeing: Running, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise it looks for prices in the network
    litellm = pytest.importorskip("litellm")
    asked = CHAT | {"model": f"openai/{NAME}"}
    found = litellm.completion(**asked, api_base=f"{seeing.address}/v1", api_key="none")
    assert found.choices[0].message.content == expected[0]


def test_the_client_of_langchain(seeing: Running, expected: tuple[str, int]) -> None:
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(
        model=NAME, base_url=f"{seeing.address}/v1", api_key="none", temperature=0, max_tokens=8
    )
    block = {"type": "image", "base64": DATA, "mime_type": "image/png"}
    content = [block, {"type": "text", "text": "What?"}]
    assert model.invoke([{"role": "user", "content": content}]).content == expected[0]
