"""Arguments that several commands take, and what all of them share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pteron.tools.inputs import LiveSize

SEED_MAX = (1 << 31) - 1


def examples(parser: argparse.ArgumentParser, *commands: str) -> None:
    """Show commands at the end of a parser's help, as they would be typed."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "examples:\n" + "\n".join(f"  {command}" for command in commands)


def add_adapter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--adapter",
        metavar="NAME",
        help="an adapter, by part of its name or its number in `pteron info` (default: $PTERON_ADAPTER, or "
        "the most capable)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def add_call(parser: argparse.ArgumentParser) -> None:
    """What is called with which values; `add_dims` says how large those are that are random."""
    parser.add_argument(
        "--method", metavar="NAME", help="what to call (default: forward, or the only method there is)"
    )
    parser.add_argument(
        "--input",
        metavar="VALUE",
        action="append",
        default=[],
        help=".npy, .npz or .json file, or a value (3, 2.5, true, [1, 2]); repeatable, in the method's order "
        "(default: random values)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=seed, default=0, help="of random inputs (default: %(default)s)"
    )


def add_dims(
    parser: argparse.ArgumentParser, purpose: str, default: str = "the most that the program takes"
) -> None:
    parser.add_argument(
        "--dim",
        metavar="SIZE",
        type=live_size,
        action="append",
        default=[],
        help=f"{purpose}: 0.1=7 for dim 1 of input 0, 7 for every dynamic dim; repeatable "
        f"(default: {default})",
    )


def live_size(text: str) -> LiveSize:
    """`7`, or `0.1=7`."""
    from pteron.tools.inputs import LiveSize  # here: help needs no NumPy

    match = re.fullmatch(r"(?:(\d+)\.(\d+)=)?(\d+)", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected SIZE or INPUT.DIM=SIZE, as in 0.1=7, not {text!r}")
    input, dim, size = match.groups()
    return LiveSize(int(size)) if input is None else LiveSize(int(size), int(input), int(dim))


def add_program(parser: argparse.ArgumentParser, kinds: str) -> None:
    parser.add_argument("program", metavar="FILE", help=kinds)
    parser.add_argument(
        "--data",
        metavar="FILE.ptd",
        action="append",
        default=[],
        help="a weight file of the program (repeatable)",
    )


def seed(text: str) -> int:
    """An argument that numbers random draws."""
    return _integer(text, 0, SEED_MAX)


def count(text: str) -> int:
    """An argument that counts something, maybe nothing."""
    return _integer(text, 0)


def positive(text: str) -> int:
    """An argument that counts something."""
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
    """A type of arguments: a number within bounds."""

    def parse(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not least <= found <= most:
            bounds = f"from {least:g}" + (f" to {most:g}" if most < float("inf") else " on")
            raise argparse.ArgumentTypeError(f"expected a number {bounds}, not {text!r}")
        return found

    return parse
