"""What commands for language models share: arguments for the model, its sampling and its grammar; and the
output: the text as it is generated, why it ended, how long it took."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from pteron.cli.arguments import Options, number, positive
from pteron.cli.named_model import find_model, given_model
from pteron.cli.progress import show_progress, watching
from pteron.cli.terminal import WordWrap, print_note, print_piece
from pteron.llm.sampling_options import OPTIONS, SEED_MAX
from pteron.tools.text import counted

if TYPE_CHECKING:
    from pteron.llm import LLM, Grammar, Piece, Sampling

_SAMPLING = [*(name for name in OPTIONS if name not in ("seed", "top_logprobs")), "seed"]


def add_llm_arguments(options: Options, max_new_tokens: int) -> None:
    options.model()
    options.parser.add_argument("text", metavar="TEXT", nargs="?", help="the same as --prompt TEXT")
    add_model_files(options)
    options.add("--lora", "PATH", "use a LoRA adapter of the model: a PEFT folder, a GGUF file or owner/name")
    also = ("--max-tokens", "-n")  # as in OpenAI's API and llama.cpp
    options.add("--max-new-tokens", "N", "maximum tokens to generate", positive, max_new_tokens, also)
    for name in _SAMPLING:
        option = OPTIONS[name]
        default = "a random one" if name == "seed" else f"the model's, or {option.default:g}"
        range = option.http if option.http and option.range.least < 0 else option.range
        kind = number(range.least, range.most, type(option.default))
        help = f"{option.help} (default: {default})"
        options.add(f"--{name.replace('_', '-')}", option.metavar, help, kind)
    options.repeatable("--stop", "TEXT", "end the text before TEXT")
    add_cache(options)
    options.precision(of_llm=True)
    add_speculate(options)
    options.flag("--quiet", "print the text only, without statistics")
    options.device()


def add_model_files(options: Options) -> None:
    options.add("--tokenizer", "FILE", "tokenizer file or folder (default: the one beside the program)")
    options.data()


def add_cache(options: Options) -> None:
    tokens = "tokens that the KV cache holds, up to the model's own number (default: the exported number, or "
    tokens += "4,096 at most for models built from checkpoints)"
    options.add("--context", "N", tokens, positive)
    add_cache_type(options, "f16 for weights of 4 or 8 bits on GPUs with 16-bit floats, else the program's")
    options.flag(
        "--no-rings", "layers with a sliding window keep all tokens, so that any prefix can be reused"
    )


def add_cache_type(options: Options, default: str = "the program's") -> None:
    help = f"elements of the KV cache: f16 halves its memory, int8 takes 28 %% of f32 (default: {default})"
    options.parser.add_argument("--cache", choices=("f32", "f16", "int8"), help=help)


def add_speculate(options: Options) -> None:
    options.add(
        "--speculate",
        "lookup|MODEL",
        "speculative decoding: propose tokens found in the text itself (lookup), or those of a smaller model "
        "with the same tokenizer; the text stays the same",
    )


def build_grammar(arguments: argparse.Namespace, llm: LLM) -> Grammar | None:
    from pteron.folders import existing
    from pteron.llm import Grammar
    from pteron.names.model_files import read_utf8

    if arguments.json_schema is not None:
        given = arguments.json_schema
        schema = given if given.lstrip().startswith("{") else read_utf8(existing(given))
        return Grammar.json_schema(llm.tokenizer, schema, eos_ids=llm.eos_ids)
    if arguments.regex is not None:
        return Grammar.regex(llm.tokenizer, arguments.regex, eos_ids=llm.eos_ids)
    return None


def load_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of an LLM that every command has an option for, except its tokenizer and adapters."""
    names = ("device", "digits", "products", "context", "cache", "speculate")
    given = {name: getattr(arguments, name) for name in names}
    return {**given, "data": arguments.data, "rings": not arguments.no_rings}


@contextmanager
def open_model(arguments: argparse.Namespace) -> Generator[LLM, None, None]:
    """The model that MODEL or --model names; it is closed with the context."""
    from pteron.llm import LLM

    located = find_model(given_model(arguments), arguments.context)
    adapters = {"lora": arguments.lora} if arguments.lora else None
    with show_progress(f"loading {located.name}"):
        llm = LLM(located, arguments.tokenizer, adapters=adapters, **load_settings(arguments))
    with llm:
        yield llm


def build_sampling(arguments: argparse.Namespace, llm: LLM) -> Sampling:
    """The sampling of the arguments; where they say nothing, the model's."""
    given = {name: getattr(arguments, name) for name in _SAMPLING if getattr(arguments, name) is not None}
    seed = given.pop("seed", random.randint(0, SEED_MAX))
    sampling = replace(llm.sampling, **given)
    return sampling if sampling.temperature == 0 else replace(sampling, seed=seed)


def warn_unused_options(arguments: argparse.Namespace, sampling: Sampling) -> None:
    given = [name for name in _SAMPLING if OPTIONS[name].is_random and getattr(arguments, name) is not None]
    unused = [f"--{name.replace('_', '-')}" for name in given]
    if unused and sampling.temperature == 0:
        verb = "has" if len(unused) == 1 else "have"
        print_note(
            f"{' and '.join(unused)} {verb} no effect at temperature 0, which always takes the most likely "
            "token: add --temperature, for example 0.7"
        )


def is_interactive() -> bool:
    """Whether standard input is a terminal, so that a person types."""
    return sys.stdin.isatty()


def print_stream(llm: LLM, pieces: Generator[Piece, None, None], prompt: str = "") -> tuple[str, bool]:
    """Print a text as it is generated, after its prompt; returns the text, and whether Ctrl-C ended it and
    its work on the GPU."""
    printed, wrap = [], WordWrap()
    is_interrupted = False
    try:
        before = llm.statistics

        def read() -> tuple[str, int, int]:
            now = llm.statistics
            counts = (0, 0) if now is before else (now.read_tokens, now.prompt_tokens)
            return "reading the prompt", *counts

        with watching(read):
            first = next(pieces, None)
        print_piece(wrap.add(prompt))
        for piece in [] if first is None else chain([first], pieces):
            printed.append(piece.text)
            print_piece(wrap.add(piece.text))
        print_piece(wrap.end())
    except KeyboardInterrupt:
        is_interrupted = True
        print(" …", end="")
    finally:
        pieces.close()
    print(flush=True)
    return "".join(printed), is_interrupted


def print_statistics(llm: LLM) -> None:
    """Print on stderr the speed and the memory of the last text."""
    statistics = llm.statistics
    read = statistics.prompt_tokens - statistics.reused_tokens
    reused = f" ({statistics.reused_tokens} reused from the cache)" if statistics.reused_tokens else ""
    proposed = statistics.proposed_tokens
    accepted = ", no tokens proposed" if llm.speculator else ""
    if proposed:
        accepted = f", {statistics.accepted_tokens} of {proposed} proposed accepted"
    rate = statistics.decode_rate  # 0 for a single token, which ends the prompt's time
    speed = f" at {rate:,.1f} tokens/s" if rate else ""
    memory = sum(llm.model.method.gpu_bytes.values())
    print_note(
        f"prompt: {counted(read, 'token')} at {statistics.prompt_rate:,.0f} tokens/s{reused}; "
        f"text: {counted(statistics.new_tokens, 'token')}{speed}{accepted}; "
        f"{memory / 1e6:,.0f} MB on {llm.model.device.name}"
    )


def longer_context(llm: LLM) -> str:
    """How to load a model with a longer context; empty if it has its longest."""
    longest = llm.longest_context
    return f"--context can be up to {longest:,}" if llm.model.context < longest else ""


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
