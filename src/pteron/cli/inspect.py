"""pteron inspect: what is in a file, as text, as JSON or as a page."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import add_adapter, add_dims, add_json, add_program, examples
from pteron.cli.progress import shown
from pteron.cli.terminal import note, show
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.tools.inspect.page import ProgramDetails


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(
        parser, "a program (.pte), a bundled program (.bpte), weights (.ptd), or a language model's folder"
    )
    parser.add_argument("--method", metavar="NAME", help="look into this method only")
    parser.add_argument("--graph", action="store_true", help="also print every node of the delegates")
    parser.add_argument("--html", action="store_true", help="write a page with graphs, launches and memory")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="of the page, which it asks for too (default: the program's name with .html, here)",
    )
    parser.add_argument("--plan", action="store_true", help="with --json: what the page shows, as `inside`")
    add_dims(parser, "live size to plan for", "the maximum, and 1")
    parser.add_argument(
        "--integer", metavar="N", type=int, default=0, help="value of live integers to plan for (default: 0)"
    )
    parser.add_argument(
        "--histograms", action="store_true", help="of all elements of constants, not of samples of large ones"
    )
    add_adapter(parser)
    add_json(parser)
    parser.set_defaults(complain=parser.error)
    examples(
        parser,
        "pteron inspect model.pte                  # what is in it, and whether it runs here",
        "pteron inspect model.pte --html           # a page to look into it: model.html",
        "pteron inspect model.pte --html --dim 1   # the same, with the launches of one token or row",
        "pteron inspect model.pte --json --plan    # graph, calls, launches and memory for other programs",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.inspect import inspect
    from pteron.tools.inspect.text import inspect_lines
    from pteron.tools.text import json_text

    is_page = arguments.html or arguments.output is not None
    _check_company(arguments, is_page)
    arguments.program = _file(Path(arguments.program))
    if is_page:
        return _write_page(arguments)
    report = inspect(
        arguments.program,
        arguments.data,
        arguments.method,
        graph=arguments.graph,
        adapter=arguments.adapter,
    )
    if arguments.plan:
        plain = {field.name: getattr(report, field.name) for field in fields(report)}
        print(json_text({**plain, "inside": _inside(arguments)}))
    elif arguments.json:
        print(json_text(report))
    else:
        show(inspect_lines(report))
    return 0


def _check_company(arguments: argparse.Namespace, is_page: bool) -> None:
    """Options that say something of plans go with what shows plans: alone they would change nothing."""
    if arguments.plan and not arguments.json:
        arguments.complain("--plan goes with --json")
    if not is_page and not arguments.plan:
        for name in ("dim", "integer", "histograms"):
            if getattr(arguments, name):
                arguments.complain(f"--{name} goes with --html, or with --json --plan")


def _file(path: Path) -> Path:
    """The file to look into: of a language model's folder, its program."""
    if not path.is_dir():
        return path
    from pteron.llm.model_files import program_file  # here: most look into files

    return program_file(path)


def _write_page(arguments: argparse.Namespace) -> int:
    from pteron.tools.inspect.page import page_text
    from pteron.tools.text import human_bytes

    path = Path(arguments.output or arguments.program.with_suffix(".html").name)
    text = page_text(_inside(arguments))
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"the page cannot be written: {error}") from None
    print(path)
    note(f"{human_bytes(len(text.encode()))}; open it in a browser")
    return 0


def _inside(arguments: argparse.Namespace) -> ProgramDetails:
    from pteron.tools.inspect.page import PageOptions, program_details

    options = PageOptions(arguments.dim, arguments.integer, arguments.histograms)
    with shown() as progress:
        return program_details(
            arguments.program,
            arguments.data,
            arguments.method,
            adapter=arguments.adapter,
            options=options,
            progress=progress,
        )
