"""Arguments that the commands for language models share, and how their answers are shown."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Generator
from pathlib import Path

from pteron.cli.arguments import add_adapter
from pteron.errors import InputError
from pteron.llm import LLM, Piece, Sampling
from pteron.llm.catalogue import fetch, names


def add_language_arguments(parser: argparse.ArgumentParser, max_new_tokens: int) -> None:
    parser.add_argument(
        "path", metavar="MODEL", nargs="?", help="a program (.pte), or a folder made by `pteron export llm`"
    )
    parser.add_argument("--model", metavar="NAME", help=f"a model by name instead: {', '.join(names())}")
    parser.add_argument(
        "--tokenizer", metavar="FILE", help="a tokenizer file or folder (default: the one beside the program)"
    )
    parser.add_argument(
        "--data", metavar="FILE.ptd", action="append", default=[], help="a weight file (repeatable)"
    )
    parser.add_argument("--max-new-tokens", metavar="N", type=int, default=max_new_tokens)
    parser.add_argument("--temperature", metavar="T", type=float, default=0.0, help="0: always the likeliest")
    parser.add_argument("--top-k", metavar="K", type=int, default=0, help="only the K likeliest tokens")
    parser.add_argument(
        "--top-p", metavar="P", type=float, default=1.0, help="only the likeliest that reach P"
    )
    parser.add_argument(
        "--min-p", metavar="P", type=float, default=0.0, help="only tokens P times the likeliest"
    )
    parser.add_argument("--repetition-penalty", metavar="R", type=float, default=1.0)
    parser.add_argument("--seed", metavar="N", type=int, help="of the draws (default: another each time)")
    parser.add_argument("--stop", metavar="TEXT", action="append", default=[], help="end there (repeatable)")
    parser.add_argument(
        "--digits",
        metavar="N",
        type=int,
        help="3: 4-bit products as good as f32; 2: quicker, to 4 decimals (default: $PTERON_DIGITS, or 3)",
    )
    parser.add_argument("--quiet", action="store_true", help="only the text, no figures at the end")
    add_adapter(parser)


def open_model(arguments: argparse.Namespace) -> LLM:
    """The model that the arguments name."""
    if (arguments.path is None) == (arguments.model is None):
        raise InputError("name a program or folder, or a model with --model, and not both")
    path = Path(arguments.path) if arguments.path else fetch(arguments.model, progress=_progress)
    if not path.exists():
        raise InputError(f"{path} does not exist")
    return LLM(
        path, arguments.tokenizer, data=arguments.data, device=arguments.adapter, digits=arguments.digits
    )


def sampling(arguments: argparse.Namespace) -> Sampling:
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 31)
    return Sampling(
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        repetition_penalty=arguments.repetition_penalty,
        seed=seed if arguments.temperature > 0 else 0,
    )


def show(pieces: Generator[Piece, None, None]) -> str:
    """Print a text as it comes; Ctrl-C ends it, and what is under way on the GPU with it. The text."""
    told = []
    try:
        for piece in pieces:
            told.append(piece.text)
            print(piece.text, end="", flush=True)
    except KeyboardInterrupt:
        print(" …", end="")
    finally:
        pieces.close()
    print(flush=True)
    return "".join(told)


def show_figures(llm: LLM) -> None:
    """What the last text took, on stderr."""
    took = llm.statistics
    read = took.prompt_tokens - took.reused_tokens
    reused = f" ({took.reused_tokens} more were still there)" if took.reused_tokens else ""
    memory = sum(llm.model.method.gpu_bytes.values())
    print(
        f"prompt: {read} tokens at {took.prompt_rate:,.0f} tokens/s{reused}; "
        f"text: {took.new_tokens} tokens at {took.decode_rate:,.1f} tokens/s; "
        f"{memory / 1e6:,.0f} MB on {llm.model.device.name}",
        file=sys.stderr,
    )


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
