"""Transcriber: samples of sound -> segments of text with their times, by a Whisper's encoder and decoder.

Its folder has two programs, a tokenizer, and a manifest, pteron.json:

    {"model": "encoder.pte", "speech": {"decoder": "decoder.pte", "multilingual": true}}

The encoder takes a log-mel spectrogram [1, bands, frames] and gives keys and values for each layer of the
decoder. The decoder takes a token [1], its position [1], those keys and values, and the keys and values of
the text so far; it gives scores [1, vocabulary] and the longer keys and values. examples/export_whisper.py
writes such a folder.

Sound is read in windows of half a minute; each begins where the last segment of the one before ended. How
tokens are chosen follows Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.names.model_files import MANIFEST, ModelFolder
from pteron.runtime import load
from pteron.speech.spectrogram import HOP, RATE, Floats, log_mel
from pteron.speech.vocabulary import STEP_SECONDS, SpeechVocabulary

Scores = npt.NDArray[np.float64]

_STEP = round(STEP_SECONDS * RATE)  # samples of one position
_TEMPERATURES = (
    0.0,
    0.2,
    0.4,
    0.6,
    0.8,
    1.0,
)  # the next one is tried if a text is unlikely or repeats itself
_RATIO_MAX = 2.4  # of a text to its compressed form: more is a repetition
_LOGPROB_MIN = -1.0  # mean of a text's tokens
_NO_SPEECH = 0.6  # probability of silence
_FIRST_SECONDS = 1.0  # the latest beginning of a window's first segment
_RESET = 0.5  # above this temperature a text is no context for the next window


class Cancelled(Exception):  # noqa: N818  # not an error
    """The caller does not want the text any more."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Text between two times, in seconds."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


@dataclass(frozen=True, slots=True)
class _Window:
    """The tokens of one window of sound."""

    tokens: list[int]
    text: str
    temperature: float
    logprob: float  # mean
    no_speech: float

    @property
    def ratio(self) -> float:
        data = self.text.encode()
        return len(data) / len(zlib.compress(data))

    @property
    def is_silent(self) -> bool:
        return self.no_speech > _NO_SPEECH and self.logprob < _LOGPROB_MIN

    @property
    def is_good(self) -> bool:
        return self.is_silent or (self.ratio <= _RATIO_MAX and self.logprob >= _LOGPROB_MIN)


def is_transcriber(folder: ModelFolder) -> bool:
    """Whether a folder has the programs of a Whisper."""
    return "speech" in folder.manifest


class Transcriber:
    """Calls from several threads run one after the other, window by window."""

    def __init__(self, files: ModelFolder, *, device: Device | str | None = None) -> None:
        folder, settings = files.path, files.manifest.get("speech")
        if not isinstance(settings, dict) or not isinstance(settings.get("decoder"), str):
            raise FormatError(f"{folder / MANIFEST}: speech must be an object with the decoder's file")
        self.program = load(files.program, device=device)
        self._decoder = load(folder / Path(settings["decoder"]).name, device=self.program.device)
        self._encode, self._decode = self.program["forward"], self._decoder["forward"]
        self._layers = len(self._encode.outputs) // 2
        inputs, scores = self._decode.inputs, self._decode.outputs[0].shape_max
        spectrogram = self._encode.inputs[0].shape_max
        if len(spectrogram) != 3 or len(inputs) != 2 + 4 * self._layers or len(scores) != 2:
            raise UnsupportedError(
                f"{folder}: the programs are not the encoder and the decoder of a Whisper: they take "
                f"{spectrogram} and {len(inputs)} inputs, and give scores {scores}"
            )
        _, self._bands, self._frames = spectrogram
        self._positions = inputs[-1].shape_max[1]  # of text
        self.vocabulary = SpeechVocabulary(
            load_tokenizer(files),
            scores[1],
            self._frames // 2,
            is_multilingual=bool(settings.get("multilingual", True)),
        )
        # Rows of positions to come are masked, so a window may begin with what the one before left.
        self._text: Sequence[Any] = [
            np.zeros(spec.shape_max, np.float32) for spec in inputs[2 + 2 * self._layers :]
        ]
        self._random = np.random.default_rng()
        self._lock = new_lock()

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes of the languages that can be transcribed."""
        return self.vocabulary.languages

    def detect_language(self, samples: Floats) -> str:
        """The code of the language that is spoken at the beginning."""
        vocabulary = self.vocabulary
        if not vocabulary.can_translate:
            return "en"
        with self._lock:
            scores = self._step(self._listen(samples), vocabulary.start, 0)
        first = vocabulary.start + 1
        return vocabulary.languages[int(scores[first : first + len(vocabulary.languages)].argmax())]

    def transcribe(
        self,
        samples: Floats,
        *,
        language: str = "en",
        task: str = "transcribe",
        prompt: str = "",
        temperature: float = 0.0,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Segment]:
        """The segments of sound at 16,000 samples per second, as they are found. `prompt` is text before it.
        With a temperature of 0, higher ones are tried where a text is unlikely or repeats itself. Cancelled
        is raised once `is_cancelled` returns True."""
        if language not in self.languages:
            raise InputError(f"the language must be one of {', '.join(self.languages)}, not {language!r}")
        if task != "transcribe" and not self.vocabulary.can_translate:
            raise InputError("this model knows English only: it cannot translate")
        head = self.vocabulary.prompt(language, task)
        before = self.vocabulary.encode(f" {prompt.strip()}") if prompt.strip() else []
        temperatures = _TEMPERATURES if temperature == 0 else (temperature,)
        size = self._frames * HOP
        at = 0
        while at < len(samples):
            part = samples[at : at + size]
            with self._lock:
                window = self._read(part, head, before, temperatures, is_cancelled)
            if window.is_silent:
                at += size
                continue
            seconds = min(size, len(part)) / RATE
            spans, used = _split(window.tokens, self.vocabulary, seconds)
            for start, end, tokens in spans:
                text = self.vocabulary.text(tokens)
                if text.strip() and start < seconds:
                    yield Segment(
                        at / RATE + start,
                        at / RATE + min(end, seconds),
                        text,
                        tuple(tokens),
                        window.temperature,
                        window.logprob,
                        window.ratio,
                        window.no_speech,
                    )
            before = (
                [] if window.temperature > _RESET else [*before, *(t for _, _, part in spans for t in part)]
            )
            at += used * _STEP if used else size

    def _read(
        self,
        part: Floats,
        head: list[int],
        before: list[int],
        temperatures: Sequence[float],
        is_cancelled: Callable[[], bool],
    ) -> _Window:
        """The text of one window, at the first temperature that makes a good one."""
        sound = self._listen(part)
        longest = self._positions // 2
        context = [self.vocabulary.previous, *before[-(longest - 1) :]] if before else []
        for temperature in temperatures:
            window = self._decode_window(sound, context, head, temperature, longest, is_cancelled)
            if window.is_good:
                break
        return window

    def _listen(self, samples: Floats) -> Sequence[Any]:
        """What the decoder sees of a window of sound; it stays on the GPU."""
        size = self._frames * HOP
        return self._encode(log_mel(samples[:size], self._bands, self._frames), on_gpu=True)

    def _step(self, sound: Sequence[Any], token: int, position: int) -> Scores:
        """The scores of the token after this one."""
        place = np.array([token], np.int64), np.array([position], np.int64)
        scores, *self._text = self._decode(*place, *sound, *self._text, on_gpu=True)
        return np.asarray(scores, np.float64).reshape(-1)

    def _decode_window(
        self,
        sound: Sequence[Any],
        context: list[int],
        head: list[int],
        temperature: float,
        longest: int,
        is_cancelled: Callable[[], bool],
    ) -> _Window:
        vocabulary, given, tokens = self.vocabulary, [*context, *head], list[int]()
        total, no_speech = 0.0, 0.0
        for position, token in enumerate(given):
            scores = self._step(sound, token, position)
            if position == len(context):  # after the beginning of the transcript
                no_speech = float(np.exp(_log_softmax(scores)[vocabulary.no_speech]))
        while True:
            if is_cancelled():
                raise Cancelled
            allowed = _log_softmax(_allow(scores, tokens, vocabulary))
            token = self._draw(allowed, temperature)
            total += float(allowed[token])
            position = len(given) + len(tokens)
            if token == vocabulary.end or len(tokens) == longest or position >= self._positions:
                break
            tokens.append(token)
            scores = self._step(sound, token, position)
        text = vocabulary.text(tokens).strip()
        return _Window(tokens, text, temperature, total / (len(tokens) + 1), no_speech)

    def _draw(self, logprobs: Scores, temperature: float) -> int:
        if temperature == 0:
            return int(logprobs.argmax())
        with np.errstate(invalid="ignore"):
            weights = np.exp(_log_softmax(logprobs / temperature))
        return int(self._random.choice(len(weights), p=weights / weights.sum()))

    def close(self) -> None:
        self._decoder.close()
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _allow(scores: Scores, tokens: Sequence[int], vocabulary: SpeechVocabulary) -> Scores:
    """The scores, with -inf for tokens that may not come next. Times surround text, in pairs that do not go
    back; a window begins with a time."""
    times, end = vocabulary.times, vocabulary.end
    found = scores.copy()
    found[vocabulary.controls] = -np.inf
    if not tokens:
        found[:times] = -np.inf
        found[times + round(_FIRST_SECONDS / STEP_SECONDS) + 1 :] = -np.inf
        return found
    is_time = tokens[-1] >= times
    is_pair = is_time and (len(tokens) < 2 or tokens[-2] >= times)
    if is_pair:
        found[times:] = -np.inf
    elif is_time:
        found[:end] = -np.inf
    last = next((token for token in reversed(tokens) if token >= times), None)
    if last is not None:  # a segment has a length
        found[times : last if is_time and not is_pair else last + 1] = -np.inf
    if _log_sum(found[times:]) > found[:times].max():
        found[:times] = -np.inf
    return found


def _log_softmax(scores: Scores) -> Scores:
    return np.asarray(scores - _log_sum(scores))


def _log_sum(scores: Scores) -> float:
    most = float(scores.max())
    return most if most == -np.inf else most + float(np.log(np.exp(scores - most).sum()))


def _split(
    tokens: Sequence[int], vocabulary: SpeechVocabulary, seconds: float
) -> tuple[list[tuple[float, float, list[int]]], int]:
    """The segments of a window, and the steps after which the next window begins; 0: after all of it."""
    times = vocabulary.times
    ends = [at for at in range(1, len(tokens)) if tokens[at - 1] >= times and tokens[at] >= times]
    is_whole = len(tokens) > 1 and tokens[-1] >= times > tokens[-2]  # no segment was begun after the last
    if not ends:
        found = [token for token in tokens if token > times]
        end = vocabulary.seconds(found[-1]) if found else seconds
        start = vocabulary.seconds(tokens[0]) if tokens and tokens[0] >= times else 0.0
        return [(start, max(end, start), list(tokens))], 0
    spans, first = [], 0
    for at in [*ends, *([len(tokens)] if is_whole else [])]:
        part = list(tokens[first:at])
        spans.append((vocabulary.seconds(part[0]), vocabulary.seconds(part[-1]), part))
        first = at
    return spans, 0 if is_whole else tokens[first - 1] - times
