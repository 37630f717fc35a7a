"""Arguments that the commands for language models share, and what they stand for."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import SEED_MAX, add_adapter, count, number, positive
from pteron.cli.arguments import seed as seed_type
from pteron.cli.progress import shown
from pteron.cli.terminal import note
from pteron.errors import InputError
from pteron.llm.models import names

if TYPE_CHECKING:
    from pteron.llm import LLM, Grammar, Sampling

_DRAWING = ("top_k", "top_p", "min_p", "seed")  # what says nothing where the likeliest token is always taken
_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


def add_language_arguments(parser: argparse.ArgumentParser, max_new_tokens: int) -> None:
    parser.add_argument(
        "path", metavar="MODEL", nargs="?", help="a program (.pte), or a folder made by `pteron export llm`"
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        choices=names(),
        help=f"a model by name instead: {', '.join(names())} (kept in ~/.cache/pteron, or $PTERON_CACHE)",
    )
    parser.add_argument(
        "--tokenizer", metavar="FILE", help="a tokenizer file or folder (default: the one beside the program)"
    )
    parser.add_argument(
        "--data", metavar="FILE.ptd", action="append", default=[], help="a weight file (repeatable)"
    )
    parser.add_argument(
        "--max-new-tokens",
        metavar="N",
        type=positive,
        default=max_new_tokens,
        help="the most tokens of a text (default: %(default)s)",
    )
    _add_sampling(parser)
    parser.add_argument("--stop", metavar="TEXT", action="append", default=[], help="end there (repeatable)")
    parser.add_argument(
        "--digits",
        metavar="N",
        type=int,
        help="3: 4-bit products as good as f32; 2: quicker, to 4 decimals (default: $PTERON_DIGITS, or 3)",
    )
    parser.add_argument("--quiet", action="store_true", help="only the text, no figures at the end")
    add_adapter(parser)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    own = "default: the model's own, or"
    parser.add_argument(
        "--temperature", metavar="T", type=number(0), help=f"0: always the likeliest token ({own} 0)"
    )
    parser.add_argument("--top-k", metavar="K", type=count, help=f"only the K likeliest ({own} 0: all)")
    parser.add_argument(
        "--top-p", metavar="P", type=number(0, 1), help=f"only the likeliest that together reach P ({own} 1)"
    )
    parser.add_argument(
        "--min-p", metavar="P", type=number(0, 1), help=f"only those P times as likely as the first ({own} 0)"
    )
    parser.add_argument(
        "--repetition-penalty",
        metavar="R",
        type=number(0),
        help=f"above 1: what was there becomes less likely ({own} 1)",
    )
    parser.add_argument(
        "--presence-penalty", metavar="A", type=number(-2, 2), help="off the logits of all that was drawn"
    )
    parser.add_argument(
        "--frequency-penalty", metavar="A", type=number(-2, 2), help="the same, once for each time"
    )
    parser.add_argument(
        "--seed", metavar="N", type=seed_type, help="of the draws (default: another each time)"
    )


def add_grammar(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json-schema", metavar="FILE", help="the text is JSON that this schema describes")
    forms.add_argument("--regex", metavar="PATTERN", help="the text is one that this expression matches")


def grammar(arguments: argparse.Namespace, llm: LLM) -> Grammar | None:
    """What the arguments say of the form of a text."""
    from pteron.llm import Grammar
    from pteron.llm.arguments import existing
    from pteron.llm.model_files import read_utf8

    if arguments.json_schema is not None:
        schema = read_utf8(existing(arguments.json_schema))
        return Grammar.json_schema(llm.tokenizer, schema, eos_ids=llm.eos_ids)
    if arguments.regex is not None:
        return Grammar.regex(llm.tokenizer, arguments.regex, eos_ids=llm.eos_ids)
    return None


@contextmanager
def open_model(arguments: argparse.Namespace) -> Generator[LLM, None, None]:
    """The model that the arguments name, for as long as it is used."""
    from pteron.llm import LLM

    path = _path(arguments)
    with shown(f"loading {path.name}"):
        llm = LLM(
            path, arguments.tokenizer, data=arguments.data, device=arguments.adapter, digits=arguments.digits
        )
    with llm:
        yield llm


def _path(arguments: argparse.Namespace) -> Path:
    from pteron.cli.exporting import fetched

    if (arguments.path is None) == (arguments.model is None):
        raise InputError("name a program or folder, or a model with --model, and not both")
    if arguments.model is not None:
        return fetched(arguments.model)
    path = Path(arguments.path)
    if not path.exists():
        raise InputError(f"there is no file or folder {path}; models by name: --model {' or '.join(names())}")
    return _runnable(path)


def model_path(given: str) -> Path:
    """The program or folder of a path, or of a model by its name where no such path is there."""
    from pteron.cli.exporting import fetched
    from pteron.llm.models import locate_model

    return _runnable(locate_model(given, fetched))


def _runnable(path: Path) -> Path:
    """A path that is there, with something to run at it."""
    from pteron.llm.model_files import program_file

    if path.is_dir() and _is_checkpoint(path):
        raise InputError(
            f"the folder {path} holds no program {program_file(path).name}; "
            f"`pteron export llm {path} -o FOLDER` makes one of a checkpoint"
        )
    return path


def _is_checkpoint(folder: Path) -> bool:
    """Whether a folder is one to export, or holds nothing of a model at all."""
    from pteron.llm.model_files import program_file
    from pteron.llm.tokenizers.load import FILE_NAMES

    if program_file(folder).exists():
        return False
    has_tokenizer = any(any(folder.glob(pattern)) for pattern in FILE_NAMES)
    return not has_tokenizer or any(folder.glob("*.safetensors"))


def sampling(arguments: argparse.Namespace, llm: LLM) -> Sampling:
    """What the arguments say of how tokens are drawn, and the model where they say nothing."""
    given = {name: getattr(arguments, name) for name in _SAMPLING if getattr(arguments, name) is not None}
    chosen = replace(llm.sampling, **given)
    if chosen.temperature == 0:
        return chosen
    seed = arguments.seed if arguments.seed is not None else random.randint(0, SEED_MAX)
    return replace(chosen, seed=seed)


def note_unheeded(arguments: argparse.Namespace, chosen: Sampling) -> None:
    """Say which of the arguments change nothing."""
    unheeded = [f"--{name.replace('_', '-')}" for name in _DRAWING if getattr(arguments, name) is not None]
    if unheeded and chosen.temperature == 0:
        verb = "changes" if len(unheeded) == 1 else "change"
        note(
            f"{' and '.join(unheeded)} {verb} nothing at temperature 0, where the likeliest token is always "
            "taken: add --temperature, as 0.7"
        )


def is_typed() -> bool:
    """Whether a person types what is read from standard input."""
    return sys.stdin.isatty()
