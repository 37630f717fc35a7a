"""pteron inspect: what a file contains, as text, as JSON or as an HTML page."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import Options, add_examples
from pteron.cli.named_model import find_given, find_program_file, given_model
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_note, print_report, print_result
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.tools.inspect.page import ProgramDetails


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model("; also a bundled program (.bpte) or weights (.ptd)")
    options.data()
    options.add("--method", "NAME", "show this method only")
    options.flag("--graph", "also print every node of the delegates")
    options.flag("--html", "write a page with graphs, launches and memory")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the page to FILE; implies --html (default: the program's name with .html, in the current "
        "folder)",
    )
    options.add(
        "--diff", "OTHER", "show what differs in another model: nodes, constants, plans; or a --figures file"
    )
    options.add("--figures", "FILE", "write launches, kernels, guards and memory of the plans, for --diff")
    options.add("--kernels", "NAME", "print the final WGSL of the launches of this kernel")
    options.flag("--plan", "with --json: add the data of the page, under the key `inside`")
    options.dims("live size to plan for", "the maximum, and 1")
    options.add("--integer", "N", "value of live integers to plan for", int, 0)
    options.flag("--histograms", "use all elements of large constants, not a sample of them")
    options.device()
    options.json()
    parser.set_defaults(fail=parser.error)
    add_examples(
        parser,
        "pteron inspect model.pte                  # its contents, and whether it runs here",
        "pteron inspect owner/name:model.pte       # the same of a hub's program, before a download",
        "pteron inspect model.pte --html           # a page to explore it: model.html",
        "pteron inspect model.pte --html --dim 1   # the same, with the launches for one token or row",
        "pteron inspect model.pte --json --plan    # graph, calls, launches and memory for other programs",
        "pteron inspect model.pte --kernels rope    # the final WGSL of this kernel's launches",
        "pteron inspect old.pte --diff new.pte     # nodes, constants, launches and guards that changed",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.names.remote import remote_program
    from pteron.tools.inspect import inspect
    from pteron.tools.inspect.report import inspect_lines
    from pteron.tools.text import json_text

    is_page = arguments.html or arguments.output is not None
    _check_options(arguments, is_page)
    asked = (arguments.diff, arguments.figures, arguments.kernels)
    shows_plans = is_page or arguments.plan or any(each is not None for each in asked)
    given = given_model(arguments)
    remote = None if shows_plans else remote_program(given)
    if remote is None:
        arguments.program = find_program_file(arguments)
    else:
        arguments.program, weights = remote
        arguments.data = arguments.data or weights
    if is_page:
        return _write_page(arguments)
    if arguments.diff is not None or arguments.figures is not None:
        return _compare_programs(arguments)
    if arguments.kernels is not None:
        from pteron.tools.inspect.page import kernel_lines  # lazy: only --kernels and pages need it

        print_report(kernel_lines(_look_inside(arguments), arguments.kernels))
        return 0
    chosen = (arguments.program, arguments.data, arguments.method)
    report = inspect(*chosen, graph=arguments.graph, adapter=arguments.device)
    if arguments.plan:
        plain = {field.name: getattr(report, field.name) for field in fields(report)}
        print(json_text({**plain, "inside": _look_inside(arguments)}))
    else:
        print_result(report, inspect_lines(report), as_json=arguments.json)
    if remote is not None:
        print_note(f"read at the hub, without a download; `pteron pull {given}` downloads it")
    return 0


def _check_options(arguments: argparse.Namespace, is_page: bool) -> None:
    """Options about plans have an effect only where plans are shown."""
    if is_page and arguments.diff:
        arguments.fail("--diff cannot be combined with --html: it prints text or --json")
    if arguments.kernels and (is_page or arguments.json or arguments.diff or arguments.figures):
        arguments.fail(
            "--kernels prints WGSL: it cannot be combined with --html, --json, --diff or --figures"
        )
    if arguments.plan and not arguments.json:
        arguments.fail("--plan needs --json")
    given = (arguments.plan, arguments.diff, arguments.figures, arguments.kernels)
    if not is_page and not any(given):
        for name in ("dim", "integer", "histograms"):
            if getattr(arguments, name):
                arguments.fail(f"--{name} needs --html, --kernels, --diff, --figures, or --json --plan")


def _write_page(arguments: argparse.Namespace) -> int:
    from pteron.tools.inspect.page import page_text
    from pteron.tools.text import human_bytes

    path = Path(arguments.output or arguments.program.with_suffix(".html").name)
    text = page_text(_look_inside(arguments))
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"the page cannot be written: {error}") from None
    print(path)
    print_note(f"{human_bytes(len(text.encode()))}; open it in a browser")
    return 0


def _compare_programs(arguments: argparse.Namespace) -> int:
    from pteron.tools.inspect.difference import difference, difference_lines
    from pteron.tools.inspect.figures import program_figures, write_figures
    from pteron.tools.local_adapter import find_adapter

    local = find_adapter(arguments.device)
    planned_for = (local.target, str(local.adapter)) if arguments.device else local.planning_target
    given = (arguments.data, arguments.method)
    options = {"sizes": arguments.dim, "integers": arguments.integer}
    if arguments.figures is not None:
        found = program_figures(arguments.program, planned_for[0], *given, **options)
        write_figures(Path(arguments.figures), found)
    if arguments.diff is not None:
        is_file = arguments.diff.endswith(".json")
        other = Path(arguments.diff) if is_file else find_given(arguments.diff).program
        report = difference(arguments.program, other, planned_for, *given, **options)
        print_result(report, difference_lines(report), as_json=arguments.json)
    return 0


def _look_inside(arguments: argparse.Namespace) -> ProgramDetails:
    from pteron.tools.inspect.page import PageOptions, program_details

    options = PageOptions(arguments.dim, arguments.integer, arguments.histograms, arguments.kernels)
    with show_progress() as progress:
        return program_details(
            arguments.program,
            arguments.data,
            arguments.method,
            adapter=arguments.device,
            options=options,
            progress=progress,
        )
