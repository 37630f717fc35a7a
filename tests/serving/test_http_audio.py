"""Audio over HTTP: files by OpenAI's client, every format of a response, errors and clients that leave."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from http_fixtures import CHAT, NAME, Running, error, openai_client, running, until
from speech_fixtures import Heard, ScriptedTranscriber, said

from pteron.llm import LLM
from pteron.serving.http import Limits
from pteron.speech import Segment

soundfile = pytest.importorskip("soundfile", reason="needs the extra `audio`")
pytest.importorskip("python_multipart", reason="needs the extra `audio`")

FIRST = said(0.0, " Hello there.", 1.5, 1.5, " How are you?", 3.3, 3.3)
WORDS = [Heard(FIRST), Heard(said(0.0, " Fine.", 0.5))]


def file(seconds: float = 4.0, form: str = "WAV") -> tuple[str, bytes]:
    made = io.BytesIO()
    soundfile.write(made, np.zeros(round(seconds * 8000)), 8000, format=form)
    return f"sound.{form.lower()}", made.getvalue()


def transcriber(**options: Any) -> ScriptedTranscriber:
    made = ScriptedTranscriber(lambda _, __: WORDS[(made.windows - 1) % 2], **options)
    return made


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(transcriber()) as made:
        yield made


@pytest.fixture
def speech(server: Running) -> ScriptedTranscriber:
    found: ScriptedTranscriber = server.loaded.speech
    found.windows = 0
    found.prompts.clear()
    return found


def post(
    server: Running, given: Any = None, *, route: str = "transcriptions", **fields: Any
) -> httpx.Response:
    files = {"file": given or file()}
    return server.http.post(f"/v1/audio/{route}", data={"model": NAME, **fields}, files=files)


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
def test_by_the_official_client(server: Running, speech: ScriptedTranscriber, form: str) -> None:
    client = openai_client(server)
    found = client.audio.transcriptions.create(model=NAME, file=file(form=form), language="en")
    assert found.text == "Hello there. How are you? Fine."
    assert found.usage is not None
    assert found.usage.type == "duration"


def test_formats(server: Running, speech: ScriptedTranscriber) -> None:
    create: Any = openai_client(server).audio.transcriptions.create
    asked = {"model": NAME, "file": file(), "prompt": "A greeting."}
    whole = create(**asked, response_format="verbose_json", timestamp_granularities=["segment"])
    assert (whole.task, whole.language, whole.duration) == ("transcribe", "english", 4.0)
    assert [(each.id, each.start, each.end) for each in whole.segments] == [
        (0, 0.0, 1.5),
        (1, 1.5, 3.3),
        (2, 3.3, 3.8),
    ]
    assert whole.segments[1].text == " How are you?"
    assert whole.segments[1].tokens == said(1.5, " How are you?", 3.3)
    assert speech.prompts[0][1:-1] == list(b" A greeting.")
    speech.windows = 0
    assert create(**asked, response_format="text") == "Hello there. How are you? Fine.\n"
    speech.windows = 0
    assert create(**asked, response_format="srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n"
        "2\n00:00:01,500 --> 00:00:03,300\nHow are you?\n\n"
        "3\n00:00:03,300 --> 00:00:03,800\nFine.\n"
    )
    speech.windows = 0
    assert create(**asked, response_format="vtt").startswith(
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there.\n\n00:00:01.500 -->"
    )


def test_a_stream(server: Running, speech: ScriptedTranscriber) -> None:
    create: Any = openai_client(server).audio.transcriptions.create
    events = list(create(model=NAME, file=file(), stream=True))
    assert [event.type for event in events] == ["transcript.text.delta"] * 3 + ["transcript.text.done"]
    assert (
        "".join(event.delta for event in events[:-1]) == events[-1].text == "Hello there. How are you? Fine."
    )


def test_translations() -> None:
    made = transcriber(multilingual=True, language="fr")
    with running(made) as server:
        client = openai_client(server)
        made.windows = -1  # the first is heard for its language too
        assert client.audio.translations.create(model=NAME, file=file()).text.startswith("Hello there.")
        vocabulary = made.vocabulary
        head = [vocabulary.start, vocabulary.language_token("fr")]  # detected
        assert made.prompts[-1][-3:] == [*head, vocabulary.start + 100]
        made.windows = 0
        whole: Any = client.audio.transcriptions.create(
            model=NAME, file=file(), response_format="verbose_json", language="de"
        )
        assert whole.language == "german"


def test_what_is_asked_of_the_transcriber(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """And times of more than an hour in its answer."""
    asked: dict[str, Any] = {}

    def transcribe(samples: Any, **options: Any) -> Iterator[Segment]:
        asked.update(options, samples=len(samples))
        numbers = (0.25, -0.5, 1.5, 0.125)
        yield Segment(59.9996, 3725.25, " One --> two.", (5, 6), *numbers)
        yield Segment(3725.25, 36_000.0, " Three.", (7,), *numbers)

    monkeypatch.setattr(server.loaded.speech, "transcribe", transcribe)
    given = {"prompt": "Names", "temperature": "0.5", "response_format": "srt"}
    assert post(server, **given).text == (
        "1\n00:01:00,000 --> 01:02:05,250\nOne -> two.\n\n2\n01:02:05,250 --> 10:00:00,000\nThree.\n"
    )
    is_cancelled = asked.pop("is_cancelled")
    settings = {"language": "en", "task": "transcribe", "prompt": "Names", "temperature": 0.5}
    assert asked == settings | {"samples": 4 * 16_000}
    assert is_cancelled()  # the request is over
    first, _ = post(server, response_format="verbose_json").json()["segments"]
    numbers = {"temperature": 0.25, "avg_logprob": -0.5, "compression_ratio": 1.5, "no_speech_prob": 0.125}
    place = {"id": 0, "seek": 0, "start": 60.0, "end": 3725.25}
    assert first == place | numbers | {"text": " One --> two.", "tokens": [5, 6]}
    lines = post(server, stream="true").text.split("\n\n")
    assert '"delta":"One --> two."' in lines[0]
    assert '"delta":" Three."' in lines[1]


@pytest.mark.parametrize("stream", ["true", "false"])
def test_an_unexpected_error_is_in_the_log(
    server: Running, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transcribe(samples: Any, **options: Any) -> Iterator[Segment]:
        yield Segment(0.0, 1.0, " One.", (5,), 0.0, 0.0, 0.0, 0.0)
        raise ArithmeticError("broken")

    monkeypatch.setattr(server.loaded.speech, "transcribe", transcribe)
    response = post(server, stream=stream)
    assert server.logged(response)["error"] == "internal_error"
    assert '"code":"internal_error"' in response.text
    (line,) = [
        line for line in server.log() if line["event"] == "failure" and line["id"] in str(response.headers)
    ]
    assert "ArithmeticError" in line["trace"]


def test_another_file_of_the_form(server: Running, speech: ScriptedTranscriber) -> None:
    """A form has one file; a file of another name is none."""
    other = server.http.post("/v1/audio/transcriptions", data={"model": NAME}, files={"sound": file()})
    assert error(other, 400)["message"] == "file is missing"


def test_the_card_of_the_model(server: Running) -> None:
    assert server.http.get(f"/v1/models/{NAME}").json()["input_modalities"] == ["audio"]


def test_the_log(server: Running, speech: ScriptedTranscriber) -> None:
    line = server.logged(post(server))
    assert (line["route"], line["status"], line["model"]) == ("/v1/audio/transcriptions", 200, NAME)
    assert line["new_tokens"] == len(FIRST) - 1 + len(WORDS[1].tokens)


def test_the_log_with_prompts() -> None:
    with running(transcriber(), prompts=True) as server:
        line = server.logged(post(server, prompt="A greeting."))
    assert (line["prompt"], line["answer"]) == ("A greeting.", ["Hello there. How are you? Fine."])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"language": "de"}, "language"),
        ({"temperature": "2"}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"response_format": "xml"}, "response_format"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities[]"),
        ({"languages": "en"}, "languages"),
        ({"given": ("a.wav", b"no sound")}, "file"),
        ({"given": ("a.wav", b"")}, "file"),
        ({"route": "translations"}, "model"),
    ],
    ids=str,
)
def test_bad_requests(server: Running, fields: dict[str, Any], param: str) -> None:
    assert error(post(server, **fields), 400)["param"] == param


def test_other_bodies(server: Running) -> None:
    route = "/v1/audio/transcriptions"
    assert error(server.http.post(route, json={"model": NAME}), 400)["code"] == "invalid_form"
    assert error(server.http.post(route, data={"model": NAME}, files={"x": b"1"}), 400)["param"] == "file"
    kind = {"Content-Type": "multipart/form-data"}
    assert server.http.post(route, content=b"--x", headers=kind).status_code == 400
    empty = error(server.http.post(route, data={"model": NAME}, files={"file": ("a.wav", b"")}), 400)
    assert empty["message"] == "the file is empty"
    many = {f"field{number}": "1" for number in range(99)}
    assert server.http.post(route, data=many, files={"file": file()}).status_code == 400
    assert error(post(server, model="other"), 404)["code"] == "model_not_found"
    assert (
        "transcribes sound only" in error(server.http.post("/v1/chat/completions", json=CHAT), 400)["message"]
    )
    embedding = {"model": NAME, "input": "a"}
    assert error(server.http.post("/v1/embeddings", json=embedding), 400)["code"] == "no_embeddings"


@pytest.mark.parametrize("package", ["python_multipart", "soundfile"])
def test_a_missing_package(server: Running, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    found = error(post(server), 400)  # not 501: clients would try again
    assert found["code"] == "no_audio"
    assert f'{package} to read sound: pip install "pteron[audio]"' in found["message"]


def test_a_model_of_text(stories: LLM) -> None:
    with running(stories) as server:
        assert error(post(server), 400)["code"] == "no_speech"


def test_limits() -> None:
    limits = Limits(audio_bytes=100_000, audio_seconds=5, body_bytes=1000)
    made = transcriber()
    with running(made, limits=limits) as server:
        assert error(post(server, file(6)), 400)["param"] == "file"
        assert error(post(server, ("a.wav", b"x" * 100_000)), 413)["code"] == "request_too_large"
        assert error(server.http.post("/v1/embeddings", content=b"x" * 2000), 413)["code"]
        assert post(server).status_code == 200  # more than other bodies may have
        assert error(post(server, route="translations"), 400)["param"] == "model"  # also of other routes
        made.program = SimpleNamespace(device=SimpleNamespace(is_usable=False))  # type: ignore[assignment]
        assert server.http.get("/health").json()["status"] == "lost"
    made.wait = lambda: time.sleep(0.1)
    with running(made, limits=Limits(seconds=0.5)) as server:
        assert error(post(server), 503)["code"] == "timeout"


def test_a_client_that_leaves() -> None:
    made, steps = transcriber(), list[int]()

    def wait() -> None:
        steps.append(1)
        threading.Event().wait(0.05)

    made.wait = wait
    with running(made) as server:
        short = openai_client(server, timeout=0.5)
        with pytest.raises(openai.APITimeoutError):
            short.audio.transcriptions.create(model=NAME, file=file())
        until(lambda: any(line.get("abandoned") for line in server.log()))
        count = len(steps)
        threading.Event().wait(0.3)
        assert len(steps) <= count + 1 < len(FIRST)
        made.wait, made.windows = lambda: None, 0
        assert post(server).json()["text"] == "Hello there. How are you? Fine."
