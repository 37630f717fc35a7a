"""Arguments that several commands share, and the types of arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pteron.tools.inputs import LiveSize

SEED_MAX = (1 << 31) - 1
_Parser = argparse._ActionsContainer  # a parser or one of its groups


def add_examples(parser: argparse.ArgumentParser, *commands: str) -> None:
    """Print commands at the end of a parser's help."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "examples:\n" + "\n".join(f"  {command}" for command in commands)


def add_repeatable(
    parser: _Parser,
    flag: str,
    metavar: str,
    help: str,
    type: Callable[[str], Any] = str,
    default: str = "",
) -> None:
    """An option that collects a list; `default` says what an empty list means."""
    details = f"repeatable; default: {default}" if default else "repeatable"
    help = f"{help} ({details})"
    parser.add_argument(flag, metavar=metavar, type=type, action="append", default=[], help=help)


def add_default(
    parser: _Parser, flag: str, metavar: str, type: Callable[[str], Any], default: object, help: str
) -> None:
    """An option whose help ends with its default."""
    parser.add_argument(
        flag, metavar=metavar, type=type, default=default, help=f"{help} (default: %(default)s)"
    )


def add_adapter(parser: _Parser) -> None:
    parser.add_argument(
        "--adapter",
        metavar="NAME",
        help="adapter, by part of its name or by its number in `pteron info` (default: $PTERON_ADAPTER, or "
        "the most capable one)",
    )


def add_json(parser: _Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def add_call(parser: _Parser) -> None:
    """The method to call and its inputs; `add_dims` adds the sizes of random inputs."""
    parser.add_argument("--method", metavar="NAME", help="method to call (default: forward, or the only one)")
    add_repeatable(
        parser,
        "--input",
        "VALUE",
        "an input of the method, in order: a .npy, .npz or .json file, or a value such as 3, 2.5 or [1, 2]",
        default="random values",
    )
    add_default(parser, "--seed", "N", seed, 0, "seed of the random inputs")


def add_dims(parser: _Parser, purpose: str, default: str = "the maximum") -> None:
    add_repeatable(
        parser,
        "--dim",
        "SIZE",
        f"{purpose}: 0.1=7 sets dim 1 of input 0, 7 sets every dynamic dim",
        live_size,
        default,
    )


def live_size(text: str) -> LiveSize:
    """`7`, or `0.1=7`."""
    from pteron.tools.inputs import LiveSize  # here: help needs no NumPy

    match = re.fullmatch(r"(?:(\d+)\.(\d+)=)?(\d+)", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected SIZE or INPUT.DIM=SIZE, as in 0.1=7, not {text!r}")
    input, dim, size = match.groups()
    return LiveSize(int(size)) if input is None else LiveSize(int(size), int(input), int(dim))


def add_program(parser: _Parser, kinds: str) -> None:
    parser.add_argument("program", metavar="FILE", help=kinds)
    add_repeatable(parser, "--data", "FILE.ptd", "weight file of the program")


def seed(text: str) -> int:
    return _integer(text, 0, SEED_MAX)


def count(text: str) -> int:
    return _integer(text, 0)


def positive(text: str) -> int:
    return _integer(text, 1)


def _integer(text: str, least: int, most: int | None = None) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least or (most is not None and number > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise argparse.ArgumentTypeError(f"expected an integer {bounds}, not {text!r}")
    return number


def number(least: float, most: float = float("inf")) -> Callable[[str], float]:
    """The type of an argument that is a number within bounds."""

    def parse(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not least <= found <= most:
            bounds = f"from {least:g} to {most:g}" if most < float("inf") else f"of at least {least:g}"
            raise argparse.ArgumentTypeError(f"expected a number {bounds}, not {text!r}")
        return found

    return parse
