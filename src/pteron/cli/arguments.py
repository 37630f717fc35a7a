"""Arguments that several commands take."""

from __future__ import annotations

import argparse


def add_adapter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--adapter",
        metavar="NAME",
        help="an adapter, by part of its name or its number in `pteron info` (default: $PTERON_ADAPTER)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def add_program(parser: argparse.ArgumentParser, kinds: str) -> None:
    parser.add_argument("program", metavar="FILE", help=kinds)
    parser.add_argument(
        "--data",
        metavar="FILE.ptd",
        action="append",
        default=[],
        help="a weight file of the program (repeatable)",
    )
