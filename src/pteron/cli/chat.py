"""pteron chat: a conversation in the terminal."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import examples
from pteron.cli.language import add_language_arguments, is_typed, note_unheeded, open_model, sampling
from pteron.cli.output import note_end, note_figures, tell
from pteron.cli.terminal import complain, note

if TYPE_CHECKING:
    from pteron.llm import LLM

_COMMANDS = {
    "/help": "these lines",
    "/reset": "forget the conversation",
    "/save FILE": "write the conversation to a file, as JSON",
    "/exit": "end, as Ctrl-D does; Ctrl-C ends an answer",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_language_arguments(parser, max_new_tokens=512)
    parser.add_argument("--system", metavar="TEXT", help="what the model should know or be")
    parser.add_argument(
        "--prompt", metavar="TEXT", action="append", help="say this and end (repeatable: turns)"
    )
    examples(
        parser,
        "pteron chat --model smollm2",
        'pteron chat folder --system "You are a pirate." --temperature 0.7',
        'pteron chat folder --prompt "What is a GPU?" --quiet',
    )


def command(arguments: argparse.Namespace) -> int:
    opening = [{"role": "system", "content": arguments.system}] if arguments.system else []
    with open_model(arguments) as llm:
        note_unheeded(arguments, sampling(arguments, llm))
        messages = list(opening)
        for text in arguments.prompt or _typed():
            if re.fullmatch(r"/[a-z]+( .*)?", text.strip()):
                verb, _, rest = text.strip().partition(" ")
                if verb in ("/exit", "/quit", "/bye"):
                    break
                if verb == "/reset":
                    messages = list(opening)
                    llm.reset()
                else:
                    _obey(verb, rest.strip(), messages)
                continue
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": _answer(llm, messages, arguments)})
    return 0


def _answer(llm: LLM, messages: list[dict[str, str]], arguments: argparse.Namespace) -> str:
    pieces = llm.chat(
        messages,
        max_new_tokens=arguments.max_new_tokens,
        sampling=sampling(arguments, llm),
        stop=arguments.stop,
        overflow="truncate",
    )
    told = tell(pieces)
    if not arguments.quiet:
        note_end(llm, "/reset forgets the conversation")
        note_figures(llm)
    if told.is_interrupted and not is_typed():
        raise KeyboardInterrupt
    return told.text


def _obey(verb: str, rest: str, messages: list[dict[str, str]]) -> None:
    """What is typed to the terminal, not to the model."""
    if verb == "/help":
        for command, purpose in _COMMANDS.items():
            note(f"{command:<12}{purpose}")
    elif verb == "/save" and rest:
        try:
            Path(rest).write_text(json.dumps(messages, indent=2, ensure_ascii=False) + "\n", "utf-8")
            note(f"wrote {rest}")
        except OSError as error:
            complain(f"{rest}: {error.strerror}")
    elif verb == "/save":
        complain("/save takes the name of a file")
    else:
        complain(f"there is no {verb}; /help lists what there is")


def _typed() -> Iterator[str]:
    """Lines from standard input until its end; on a terminal they can be edited and called back."""
    prompt = ""
    if is_typed():
        with suppress(ImportError):  # Windows' terminals do that themselves
            import readline  # noqa: F401
        note("Type a message; /help lists commands, Ctrl-D ends.")
        prompt = "> "
    while True:
        try:
            text = input(prompt)
        except (EOFError, KeyboardInterrupt) as end:
            if prompt:
                print()  # the shell's prompt gets a line of its own
            if isinstance(end, KeyboardInterrupt):
                raise
            return
        if text.strip():
            yield text
