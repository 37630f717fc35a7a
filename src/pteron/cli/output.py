"""How texts of language models are shown: as they come, and then why they ended and what they took."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pteron.cli.progress import shown
from pteron.cli.terminal import note, tell_text
from pteron.tools.text import counted

if TYPE_CHECKING:
    from pteron.llm import LLM, Piece


@dataclass(frozen=True, slots=True)
class PrintedText:
    """A text that was shown, and whether Ctrl-C ended it."""

    text: str
    is_interrupted: bool


def tell(pieces: Generator[Piece, None, None], before: str = "") -> PrintedText:
    """Print a text as it comes, behind what stands before it; Ctrl-C ends it, and what is under way on the
    GPU with it."""
    told = []
    is_interrupted = False
    try:
        with shown("reading the prompt"):
            first = next(pieces, None)
        print(before, end="")
        for piece in [] if first is None else chain([first], pieces):
            told.append(piece.text)
            tell_text(piece.text)
    except KeyboardInterrupt:
        is_interrupted = True
        print(" …", end="")
    finally:
        pieces.close()
    print(flush=True)
    return PrintedText("".join(told), is_interrupted)


def note_figures(llm: LLM) -> None:
    """What the last text took, on stderr."""
    took = llm.statistics
    read = took.prompt_tokens - took.reused_tokens
    reused = f" ({took.reused_tokens} more were still there)" if took.reused_tokens else ""
    memory = sum(llm.model.method.gpu_bytes.values())
    note(
        f"prompt: {counted(read, 'token')} at {took.prompt_rate:,.0f} tokens/s{reused}; "
        f"text: {counted(took.new_tokens, 'token')} at {took.decode_rate:,.1f} tokens/s; "
        f"{memory / 1e6:,.0f} MB on {llm.model.device.name}"
    )


def note_end(llm: LLM, remedy: str) -> None:
    """Say where the context, or the number of tokens asked for, cut a text."""
    took, context = llm.statistics, llm.model.context
    if took.dropped_tokens:
        note(
            f"the oldest {took.dropped_tokens:,} tokens were dropped: the context holds {context:,}; {remedy}"
        )
    if took.finish_reason == "context":
        note(f"the text ends here because the context of {context:,} tokens is full; {remedy}")
    elif took.finish_reason == "length":
        note(f"the text ends here because of --max-new-tokens {took.new_tokens}")
