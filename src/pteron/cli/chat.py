"""pteron chat: a conversation in the terminal."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.cli.arguments import Options, add_examples
from pteron.cli.llm_arguments import (
    add_llm_arguments,
    build_sampling,
    is_interactive,
    longer_context,
    open_model,
    print_finish_reason,
    print_statistics,
    print_stream,
    warn_unused_options,
)
from pteron.cli.terminal import print_error, print_note, reading_stdin
from pteron.errors import InputError, OutOfMemory, PteronError

if TYPE_CHECKING:
    from pteron.llm import LLM

_COMMANDS = {
    "/help": "list these commands",
    "/image FILE": "add an image to the next message",
    "/reset": "forget the conversation",
    "/save FILE": "write the conversation to a file, as JSON",
    "/exit": "leave, as Ctrl-D does; Ctrl-C stops an answer",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    add_llm_arguments(options, max_new_tokens=512)
    options.add("--system", "TEXT", "system prompt: what the model should know or be")
    message = "send this message, then exit (repeatable: turns)"
    parser.add_argument("--prompt", "-p", metavar="TEXT", action="append", default=[], help=message)
    image = "add an image to the first message, for models that read images (repeatable)"
    parser.add_argument("--image", metavar="FILE", action="append", default=[], help=image)
    add_examples(
        parser,
        "pteron chat smollm2",
        "pteron chat model.gguf",
        "pteron chat Qwen/Qwen3-0.6B",
        'pteron chat folder --system "You are a pirate." --temperature 0.7',
        'pteron chat folder --prompt "What is a GPU?" --quiet',
        'pteron chat HuggingFaceTB/SmolVLM-256M-Instruct --image cat.jpg --prompt "What is this?"',
    )


def command(arguments: argparse.Namespace) -> int:
    opening: list[dict[str, Any]] = (
        [{"role": "system", "content": arguments.system}] if arguments.system else []
    )
    with open_model(arguments) as llm:
        warn_unused_options(arguments, build_sampling(arguments, llm))
        messages, images = list(opening), [_image(llm, file) for file in arguments.image]
        given = [*([] if arguments.text is None else [arguments.text]), *arguments.prompt]
        for text in given or _read_lines():
            if re.fullmatch(r"/[a-z]+( .*)?", text.strip()):
                verb, _, rest = text.strip().partition(" ")
                if verb in ("/exit", "/quit", "/bye"):
                    break
                if verb == "/reset":
                    messages, images = list(opening), []
                    llm.reset()
                elif verb == "/image" and rest.strip():
                    _add_image(llm, rest.strip(), images)
                else:
                    _run_slash_command(verb, rest.strip(), messages)
                continue
            content = [*images, {"type": "text", "text": text}] if images else text
            messages.append({"role": "user", "content": content})
            images = []
            try:
                messages.append({"role": "assistant", "content": _answer(llm, messages, arguments)})
            except (InputError, OutOfMemory) as error:
                if given:
                    raise
                del messages[-1]
                print_error(f"{error}; the conversation goes on without this message")
    return 0


def _image(llm: LLM, file: str) -> dict[str, Any]:
    """The part of a message for an image. It has the pixels, because the file may change during the
    conversation, and the path for `/save`."""
    from pteron.llm.images.load import load_image

    part = {"type": "image", "image": load_image(file), "path": file}
    llm.read_images([{"role": "user", "content": [part]}])  # an error if the model reads none
    return part


def _saved(message: dict[str, Any]) -> dict[str, Any]:
    """A message for a file: images are paths."""
    if isinstance(message["content"], str):
        return message
    parts = [
        {"type": "image", "image": part["path"]} if part["type"] == "image" else part
        for part in message["content"]
    ]
    return message | {"content": parts}


def _add_image(llm: LLM, file: str, images: list[dict[str, Any]]) -> None:
    try:
        images.append(_image(llm, file))
        print_note(f"{file} goes with the next message")
    except PteronError as error:
        print_error(str(error))


def _answer(llm: LLM, messages: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    pieces = llm.chat(
        messages,
        max_new_tokens=arguments.max_new_tokens,
        sampling=build_sampling(arguments, llm),
        stop=arguments.stop,
        overflow="truncate",
        adapter=next(iter(llm.adapters), None),
    )
    text, is_interrupted = print_stream(llm, pieces)
    if not arguments.quiet:
        remedies = (longer_context(llm), "/reset forgets the conversation")
        print_finish_reason(llm, "; ".join(filter(None, remedies)))
        print_statistics(llm)
    if is_interrupted and not is_interactive():
        raise KeyboardInterrupt
    return text


def _run_slash_command(verb: str, rest: str, messages: list[dict[str, Any]]) -> None:
    if verb == "/help":
        for command, purpose in _COMMANDS.items():
            print_note(f"{command:<13}{purpose}")
    elif verb == "/save" and rest:
        try:
            saved = json.dumps([_saved(message) for message in messages], indent=2, ensure_ascii=False)
            Path(rest).write_text(saved + "\n", "utf-8")
            print_note(f"wrote {rest}")
        except OSError as error:
            print_error(f"{rest}: {error.strerror}")
    elif verb in ("/save", "/image"):
        print_error(f"{verb} needs a file name")
    else:
        print_error(f"unknown command {verb}; /help lists all")


def _read_lines() -> Iterator[str]:
    """The lines of standard input that are not empty; on a terminal with editing and history."""
    prompt = ""
    if is_interactive():
        with suppress(ImportError):  # Windows' terminals have their own history
            import readline  # noqa: F401
        print_note("Type a message; /help lists commands, Ctrl-D ends.")
        prompt = "> "
    while True:
        try:
            with reading_stdin():
                text = input(prompt)
        except (EOFError, KeyboardInterrupt) as end:
            if prompt:
                print()  # the shell's prompt gets its own line
            if isinstance(end, KeyboardInterrupt):
                raise
            return
        if text.strip():
            yield text
