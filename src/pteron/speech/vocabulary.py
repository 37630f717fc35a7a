"""SpeechVocabulary: the tokens of a Whisper. Pieces of text come first, then tokens that control the decoder:
the end, the beginning of a transcript, languages, tasks, and times in steps of 20 ms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError
from pteron.llm.tokenizers.tokenizer import Tokenizer

STEP_SECONDS = 0.02  # between two times
_TASKS = ("translate", "transcribe")
_OTHERS = 6  # tasks, the beginnings of a language model's and of an earlier text, no speech, no times
_CODES = """en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta
no th ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr
pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln
ha ba jw su yue"""
_NAMES = """english chinese german spanish russian korean french japanese portuguese turkish
polish catalan dutch arabic swedish italian indonesian hindi finnish vietnamese hebrew ukrainian
greek malay czech romanian danish hungarian tamil norwegian thai urdu croatian bulgarian lithuanian
latin maori malayalam welsh slovak telugu persian latvian bengali serbian azerbaijani slovenian
kannada estonian macedonian breton basque icelandic armenian nepali mongolian bosnian kazakh
albanian swahili galician marathi punjabi sinhala khmer shona yoruba somali afrikaans occitan
georgian belarusian tajik sindhi gujarati amharic yiddish lao uzbek faroese haitian_creole pashto
turkmen nynorsk maltese sanskrit luxembourgish myanmar tibetan tagalog malagasy assamese tatar
hawaiian lingala hausa bashkir javanese sundanese cantonese"""
LANGUAGES = {
    code: name.replace("_", " ") for code, name in zip(_CODES.split(), _NAMES.split(), strict=True)
}  # in the order of their tokens


class SpeechVocabulary:
    """`size` is the width of the decoder's scores, `positions` the number of steps of a window of sound."""

    def __init__(self, tokenizer: Tokenizer, size: int, positions: int, *, is_multilingual: bool) -> None:
        self._tokenizer = tokenizer
        end = tokenizer.token_id("<|endoftext|>")
        self.end = tokenizer.vocab_size if end is None else end
        self.start = self.end + 1
        count = size - self.end - 2 - _OTHERS - (positions + 1)
        if not 1 <= count <= len(LANGUAGES):
            raise FormatError(
                f"a decoder with {size} scores does not belong to this tokenizer, which has {self.end} "
                f"pieces, and to windows of {positions} steps"
            )
        self.languages = tuple(LANGUAGES)[:count] if is_multilingual else ("en",)
        self._is_multilingual = is_multilingual
        first = self.start + 1 + count
        self._tasks = dict(zip(_TASKS, (first, first + 1), strict=True))
        self.previous = first + 3  # before the text of an earlier window
        self.no_speech = first + 4
        self.times = first + _OTHERS  # the first time: 0 seconds
        self.size = size

    @property
    def can_translate(self) -> bool:
        return self._is_multilingual

    def prompt(self, language: str, task: str) -> list[int]:
        """What a transcript with times begins with."""
        if not self._is_multilingual:
            return [self.start]
        return [self.start, self.language_token(language), self._tasks[task]]

    def language_token(self, language: str) -> int:
        return self.start + 1 + self.languages.index(language)

    @cached_property
    def controls(self) -> npt.NDArray[np.int64]:
        """Tokens that are no part of a transcript."""
        return np.arange(self.start, self.times)

    def encode(self, text: str) -> list[int]:
        return [token for token in self._tokenizer.encode(text) if token < self.end]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without times."""
        pieces = [self._tokenizer.token_bytes(token) for token in tokens if token < self.end]
        return b"".join(pieces).decode("utf-8", "replace")

    def seconds(self, token: int) -> float:
        return (token - self.times) * STEP_SECONDS
