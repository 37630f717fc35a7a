"""The output of language models: their text as it is generated, why it ended, and how long it took."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_note, print_piece
from pteron.tools.text import counted

if TYPE_CHECKING:
    from pteron.llm import LLM, Piece


@dataclass(frozen=True, slots=True)
class PrintedText:
    """A text that was printed, and whether Ctrl-C ended it."""

    text: str
    is_interrupted: bool


def print_stream(pieces: Generator[Piece, None, None], prompt: str = "") -> PrintedText:
    """Print a text as it is generated, after its prompt. Ctrl-C ends the text and its work on the GPU."""
    printed = []
    is_interrupted = False
    try:
        with show_progress("reading the prompt"):
            first = next(pieces, None)
        print(prompt, end="")
        for piece in [] if first is None else chain([first], pieces):
            printed.append(piece.text)
            print_piece(piece.text)
    except KeyboardInterrupt:
        is_interrupted = True
        print(" …", end="")
    finally:
        pieces.close()
    print(flush=True)
    return PrintedText("".join(printed), is_interrupted)


def print_statistics(llm: LLM) -> None:
    """Print on stderr the speed and the memory of the last text."""
    statistics = llm.statistics
    read = statistics.prompt_tokens - statistics.reused_tokens
    reused = f" ({statistics.reused_tokens} reused from the cache)" if statistics.reused_tokens else ""
    memory = sum(llm.model.method.gpu_bytes.values())
    print_note(
        f"prompt: {counted(read, 'token')} at {statistics.prompt_rate:,.0f} tokens/s{reused}; "
        f"text: {counted(statistics.new_tokens, 'token')} at {statistics.decode_rate:,.1f} tokens/s; "
        f"{memory / 1e6:,.0f} MB on {llm.model.device.name}"
    )


def print_finish_reason(llm: LLM, remedy: str) -> None:
    """Print on stderr whether the context, or the token limit, cut a text."""
    statistics, context = llm.statistics, llm.model.context
    if statistics.dropped_tokens:
        dropped = counted(statistics.dropped_tokens, "token")
        print_note(f"the oldest {dropped} were dropped: the context holds {context:,}; {remedy}")
    if statistics.finish_reason == "context":
        print_note(f"the text ends here because the context of {context:,} tokens is full; {remedy}")
    elif statistics.finish_reason == "length":
        print_note(f"the text ends here because of --max-new-tokens {statistics.new_tokens}")
