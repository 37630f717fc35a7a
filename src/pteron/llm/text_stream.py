"""The bytes of one token after another -> text, as soon as it is certain."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class TextStream:
    """Turns tokens into text while they arrive.

    `push` returns what a token completes: a character whose bytes are spread over tokens comes out once,
    whole, with the last of them. `finish` returns U+FFFD for bytes that never became a character.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], drop_space: bool) -> None:
        self._token_bytes = token_bytes
        self._drop_space = drop_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        data = self._token_bytes(token)
        if self._drop_space and data:
            data = data.removeprefix(b" ")
            self._drop_space = False
        return self._decoder.decode(data)

    def finish(self) -> str:
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
