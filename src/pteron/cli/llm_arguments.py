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

from pteron.cli.arguments import SEED_MAX, Options, count, number, positive
from pteron.cli.arguments import seed as seed_type
from pteron.cli.named_model import find_model, given_model
from pteron.cli.progress import show_progress
from pteron.cli.terminal import WordWrap, print_note, print_piece
from pteron.tools.text import counted

if TYPE_CHECKING:
    from pteron.llm import LLM, Grammar, Piece, Sampling

_RANDOM = ("top_k", "top_p", "min_p", "seed")  # these have no effect at temperature 0
# name -> metavar, type, help, default
_SAMPLING = {
    "temperature": ("T", number(0), "0 always takes the most likely token", "0"),
    "top_k": ("K", count, "sample from the K most likely tokens; 0: from all", "0"),
    "top_p": ("P", number(0, 1), "sample from the most likely tokens whose probabilities sum to P", "1"),
    "min_p": ("P", number(0, 1), "sample from tokens at least P times as likely as the first", "0"),
    "repetition_penalty": ("R", number(0), "above 1: tokens of the text become less likely", "1"),
    "presence_penalty": ("A", number(-2, 2), "subtract A from the logits of generated tokens", "0"),
    "frequency_penalty": ("A", number(-2, 2), "the same, times how often a token was generated", "0"),
}


def add_llm_arguments(options: Options, max_new_tokens: int) -> None:
    options.model()
    options.parser.add_argument("text", metavar="TEXT", nargs="?", help="the same as --prompt TEXT")
    add_model_files(options)
    options.add("--lora", "PATH", "use a LoRA adapter of the model: a PEFT folder, a GGUF file or owner/name")
    also = ("--max-tokens", "-n")  # as in OpenAI's API and llama.cpp
    options.add("--max-new-tokens", "N", "maximum tokens to generate", positive, max_new_tokens, also)
    for name, (metavar, kind, purpose, default) in _SAMPLING.items():
        help = f"{purpose} (default: the model's, or {default})"
        options.add(f"--{name.replace('_', '-')}", metavar, help, kind)
    options.add("--seed", "N", "seed of the sampler (default: a random one)", seed_type)
    options.repeatable("--stop", "TEXT", "end the text before TEXT")
    add_cache(options)
    options.precision()
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
    add_cache_type(options)
    options.flag(
        "--no-rings", "layers with a sliding window keep all tokens, so that any prefix can be reused"
    )


def add_cache_type(options: Options) -> None:
    help = "elements of the KV cache: f16 halves its memory, int8 takes 28 %% of f32 (default: the program's)"
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
    sampling = replace(llm.sampling, **given)
    if sampling.temperature == 0:
        return sampling
    seed = arguments.seed if arguments.seed is not None else random.randint(0, SEED_MAX)
    return replace(sampling, seed=seed)


def warn_unused_options(arguments: argparse.Namespace, sampling: Sampling) -> None:
    unused = [f"--{name.replace('_', '-')}" for name in _RANDOM if getattr(arguments, name) is not None]
    if unused and sampling.temperature == 0:
        verb = "has" if len(unused) == 1 else "have"
        print_note(
            f"{' and '.join(unused)} {verb} no effect at temperature 0, which always takes the most likely "
            "token: add --temperature, for example 0.7"
        )


def is_interactive() -> bool:
    """Whether standard input is a terminal, so that a person types."""
    return sys.stdin.isatty()


def print_stream(pieces: Generator[Piece, None, None], prompt: str = "") -> tuple[str, bool]:
    """Print a text as it is generated, after its prompt; returns the text, and whether Ctrl-C ended it and
    its work on the GPU."""
    printed, wrap = [], WordWrap()
    is_interrupted = False
    try:
        with show_progress("reading the prompt"):
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
