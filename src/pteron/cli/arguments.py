"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pteron.tools.inputs import LiveSize


def add_adapter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--adapter",
        metavar="NAME",
        help="an adapter, by part of its name or its number in `pteron info` (default: $PTERON_ADAPTER)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def add_dims(parser: argparse.ArgumentParser, purpose: str) -> None:
    parser.add_argument(
        "--dim",
        metavar="SIZE",
        type=live_size,
        action="append",
        default=[],
        help=f"{purpose}: 0.1=7 for dim 1 of input 0, 7 for every dynamic dim; repeatable",
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
