"""Writes a site that writes down what is said: Whisper tiny.en in a browser, on the visitor's GPU.

    python examples/transcribe_web.py SITE
    python3 -m http.server -d SITE

The page listens to a microphone or to a file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from models.whisper import Sizes, trained
from transcribe import Vocabulary, compile_both, vocabulary

import pteron


def words_json(words: Vocabulary) -> dict[str, object]:
    """What the page must know of the tokens; a character of a piece is a byte."""
    return {
        "pieces": [piece.decode("latin-1") for piece in words.pieces],
        "prompt": words.prompt,
        "end": words.end,
        "notFirst": [words.end, words.pieces.index(b" ")],
    }


def export_site(
    folder: str, encoder: Any, decoder: Any, sizes: Sizes, words: Vocabulary, **options: Any
) -> Any:
    """Write the site of a Whisper."""
    encode, decode = compile_both(encoder, decoder, sizes)
    programs = {"encode": encode.program, "decode": decode.program}
    return pteron.export_web(programs, folder, page="sound", data=words_json(words), **options)


def main(arguments: Sequence[str]) -> None:
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    encoder, decoder = trained()
    print(
        export_site(
            arguments[0], encoder, decoder, Sizes(), vocabulary(), name="Whisper tiny.en", progress=print
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
