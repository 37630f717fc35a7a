"""POST /v1/audio/transcriptions, /v1/audio/translations: what is said in a file, by a Whisper."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from starlette.datastructures import UploadFile
from starlette.responses import PlainTextResponse, Response

from pteron.errors import InputError
from pteron.serving.api.schema import Body, Finite
from pteron.serving.http.disconnect import check_client, run_in_thread
from pteron.serving.http.errors import ApiError, invalid_value, validated
from pteron.serving.http.event_stream import SendEvent, respond
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.server_state import LoadedModel, open_request
from pteron.serving.http.sse import DONE, encode_event
from pteron.speech import Segment, Transcriber
from pteron.speech.sound_file import read_sound
from pteron.speech.spectrogram import RATE, Floats
from pteron.speech.transcriber import Cancelled
from pteron.speech.vocabulary import LANGUAGES

router = APIRouter()
_FIELDS_MAX = 32
_SEGMENT = ("text", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob")


class AudioBody(Body):
    """The fields of a form, which are texts."""

    model_config = ConfigDict(strict=False)
    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] = "json"
    temperature: Annotated[Finite, Field(ge=0, le=1)] = 0.0
    stream: bool = False
    timestamp_granularities: Annotated[
        list[Literal["segment"]] | None, Field(alias="timestamp_granularities[]")
    ] = None


@router.post("/v1/audio/transcriptions")
async def transcribe(request: Request) -> Response:
    return await _respond(request, "transcribe")


@router.post("/v1/audio/translations")
async def translate(request: Request) -> Response:
    """In English, whatever is spoken."""
    return await _respond(request, "translate")


async def _respond(request: Request, task: str) -> Response:
    body, data = await _read_form(request)
    model, record = await open_request(request, body.model)
    speech = model.speech
    if speech is None:
        raise invalid_value(f"{model.names[0]} does not transcribe sound", "model", code="no_speech")
    if task == "translate" and not speech.vocabulary.can_translate:
        message = f"{model.names[0]} knows English only: it cannot translate"
        raise invalid_value(message, "model", code="no_translation")
    if body.language is not None and body.language not in speech.languages:
        known = ", ".join(speech.languages)
        raise invalid_value(f"the language must be one of {known}, not {body.language!r}", "language")
    if model.server.logs.with_prompts:
        record.prompt = body.prompt or ""
    try:
        seconds = model.server.limits.audio_seconds
        samples = await run_in_thread(request.receive, read_sound, data, seconds, check_client)
    except InputError as error:
        raise invalid_value(str(error), "file") from error
    work = _Transcription(model, record, speech, body, task, samples)
    return await respond(request, work, stream=body.stream)


async def _read_form(request: Request) -> tuple[AudioBody, bytes]:
    """The fields and the file of a request."""
    for package in ("python_multipart", "soundfile"):
        if find_spec(package) is None:  # no 5xx: clients try again after those
            message = f'the server needs the package {package} to read sound: pip install "pteron[audio]"'
            raise ApiError(400, message, code="no_audio")
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        raise ApiError(400, "the body must be a form, multipart/form-data", code="invalid_form")
    async with request.form(max_files=1, max_fields=_FIELDS_MAX) as form:
        fields: dict[str, Any] = {}
        data: bytes | None = None
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if name == "file":
                    data = await value.read()
            elif name.endswith("[]"):
                fields.setdefault(name, []).append(value)
            else:
                fields[name] = value
    if data is None:
        raise invalid_value("file is missing", "file", code="missing_required_parameter")
    if not data:
        raise invalid_value("the file is empty", "file")
    return validated(AudioBody, fields), data


class _Transcription:
    """The segments of one request, in each format of a response."""

    media_type = "text/event-stream"

    def __init__(
        self,
        model: LoadedModel,
        record: RequestRecord,
        speech: Transcriber,
        body: AudioBody,
        task: str,
        samples: Floats,
    ) -> None:
        self._model, self._record, self._speech = model, record, speech
        self._body, self._task, self._samples = body, task, samples
        self._language = body.language
        self._segments: list[Segment] = []
        self._has_left = threading.Event()
        record.choices = 1

    def close(self) -> None:
        self._has_left.set()
        self._record.counted.new_tokens = sum(len(segment.tokens) for segment in self._segments)
        if self._model.server.logs.with_prompts:
            self._record.answer = [self._text]

    async def response(self) -> Response:
        async for _ in self._read():
            pass
        match self._body.response_format:
            case "json":
                return JSONResponse({"text": self._text, "usage": self._usage})
            case "verbose_json":
                return JSONResponse(self._verbose)
            case "text":
                return PlainTextResponse(f"{self._text}\n")
            case "srt":
                return PlainTextResponse("\n".join(self._subtitles(",", numbered=True)))
            case "vtt":
                return PlainTextResponse("\n".join(["WEBVTT\n", *self._subtitles(".")]))

    async def write(self, send: SendEvent) -> None:
        """Send the events of a stream: each segment when it is found."""
        async with aclosing(self._read()) as segments:
            async for segment in segments:
                text = segment.text if len(self._segments) > 1 else segment.text.lstrip()
                await send(encode_event({"type": "transcript.text.delta", "delta": text}))
        await send(encode_event({"type": "transcript.text.done", "text": self._text, "usage": self._usage}))
        await send(DONE)

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield encode_event(error.body)

    async def _read(self) -> AsyncGenerator[Segment, None]:
        """The segments, each found in the worker thread of the model."""
        limits, worker = self._model.server.limits, self._model.worker
        if self._language is None:
            self._language = await to_thread.run_sync(
                self._speech.detect_language, self._samples, limiter=worker
            )
        found = self._speech.transcribe(
            self._samples,
            language=self._language,
            task=self._task,
            prompt=self._body.prompt or "",
            temperature=self._body.temperature,
            is_cancelled=lambda: self._has_left.is_set() or self._record.seconds > limits.seconds,
        )
        while True:
            try:
                # Abandoned when the client leaves: `close` then ends it within one token.
                segment = await to_thread.run_sync(next, found, None, abandon_on_cancel=True, limiter=worker)
            except Cancelled:
                message = f"the sound took longer than {limits.seconds:g} seconds"
                raise ApiError(503, message, code="timeout") from None
            if segment is None:
                return
            if self._record.first_token_seconds is None:
                self._record.first_token_seconds = self._record.seconds
            self._segments.append(segment)
            yield segment

    @property
    def _text(self) -> str:
        return "".join(segment.text for segment in self._segments).strip()

    @property
    def _seconds(self) -> float:
        return len(self._samples) / RATE

    @property
    def _usage(self) -> dict[str, Any]:
        return {"type": "duration", "seconds": round(self._seconds, 2)}

    @property
    def _verbose(self) -> dict[str, Any]:
        segments = [
            {"id": number, "seek": 0, "start": round(segment.start, 2), "end": round(segment.end, 2)}
            | {name: getattr(segment, name) for name in _SEGMENT}
            | {"tokens": list(segment.tokens)}
            for number, segment in enumerate(self._segments)
        ]
        return {
            "task": self._task,
            "language": LANGUAGES[self._language or "en"],
            "duration": round(self._seconds, 2),
            "text": self._text,
            "segments": segments,
            "usage": self._usage,
        }

    def _subtitles(self, point: str, *, numbered: bool = False) -> Iterator[str]:
        for number, segment in enumerate(self._segments):
            times = f"{_clock(segment.start, point)} --> {_clock(segment.end, point)}"
            head = f"{number + 1}\n" if numbered else ""
            yield f"{head}{times}\n{segment.text.strip().replace('-->', '->')}\n"


def _clock(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"
