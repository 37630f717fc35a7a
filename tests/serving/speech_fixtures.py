"""A transcriber whose decoder follows a script, without programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from pteron.speech import Transcriber
from pteron.speech.vocabulary import SpeechVocabulary

POSITIONS, LANGUAGES = 1500, 99
PIECES = 256  # tokens are bytes
SIZE = PIECES + 2 + LANGUAGES + 6 + POSITIONS + 1
TIMES = PIECES + 2 + LANGUAGES + 6
BYTES: Any = SimpleNamespace(
    vocab_size=PIECES,
    token_id=lambda text: None,
    token_bytes=lambda token: bytes([token]),
    encode=lambda text: list(text.encode()),
)


def said(*parts: float | str) -> list[int]:
    """Tokens of times in seconds, and of texts."""
    return [
        token
        for part in parts
        for token in (list(part.encode()) if isinstance(part, str) else [TIMES + round(part * 50)])
    ]


@dataclass(frozen=True)
class Heard:
    """What a decoder says of a window. `doubt` lowers the probability of its tokens."""

    tokens: Sequence[int]
    no_speech: float = 0.0
    doubt: float = 0.0


class ScriptedTranscriber(Transcriber):
    """`script` returns what is said in a window, by the number of the window and the attempt to decode it."""

    def __init__(
        self, script: Callable[[int, int], Heard], *, multilingual: bool = False, language: str = "en"
    ) -> None:
        self.program = SimpleNamespace(device=SimpleNamespace(is_usable=True), close=lambda: None)  # type: ignore[assignment]
        self._decoder = self.program
        self.vocabulary = SpeechVocabulary(BYTES, SIZE, POSITIONS, is_multilingual=multilingual)
        self._bands, self._frames, self._positions, self._layers = 80, 2 * POSITIONS, 448, 1
        self._text = []
        self._random = np.random.default_rng(0)
        self._lock = threading.RLock()
        self._encode, self._decode = self._listen_scripted, self._say  # type: ignore[assignment]
        self._script, self._language = script, language
        self.prompts: list[list[int]] = []  # the tokens before each answer
        self.windows = 0
        self._given: list[int] = []
        self._attempt = 0
        self.wait: Callable[[], None] = lambda: None

    def _listen_scripted(self, spectrogram: Any, on_gpu: bool) -> list[Any]:
        assert spectrogram.shape == (1, 80, 3000)
        self.windows += 1
        self._attempt = -1
        return []

    def _say(self, token: Any, position: Any, *memories: Any, on_gpu: bool) -> list[Any]:
        self.wait()
        if position[0] == 0:
            self._given = []
            self._attempt += 1
        self._given.append(int(token[0]))
        assert len(self._given) == position[0] + 1
        vocabulary = self.vocabulary
        scores = np.zeros((1, SIZE), np.float32)
        begin = self._given.index(vocabulary.start) if vocabulary.start in self._given else len(self._given)
        is_head = begin == len(self._given) - 1
        if is_head and vocabulary.can_translate:
            scores[0, vocabulary.language_token(self._language)] = 20
        size = 3 if vocabulary.can_translate else 1
        done = len(self._given) - begin - size
        heard = self._script(self.windows - 1, self._attempt)
        if is_head and heard.no_speech:
            scores[0, vocabulary.no_speech] = np.log(heard.no_speech / (1 - heard.no_speech) * (SIZE - 1))
        if done == 0:
            self.prompts.append(self._given[:])
        if done >= 0 and not (is_head and heard.no_speech):
            scores[0, [*heard.tokens, vocabulary.end][min(done, len(heard.tokens))]] = 40 - heard.doubt
        return [scores]
