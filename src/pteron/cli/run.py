"""pteron run: call a method once or more, or check its outputs against expected ones."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from pathlib import Path

from pteron.cli.arguments import Options, add_examples, count, number, selection
from pteron.cli.named_model import find_program_file, given_model
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_result
from pteron.errors import PteronError
from pteron.processes import python_module, started_in
from pteron.system import new_process_group

_MARK = "PTERON_ISOLATED"  # in the environment of a command's own process
_SECONDS = 60.0  # of a command's own process


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model("; also a bundled program (.bpte)")
    options.data()
    options.call()
    options.dims("live size of random inputs")
    options.add("--output", "FOLDER", "write the outputs to FOLDER, as output_N.npy")
    options.add("--repeat", "N", "call the method N more times and report the time", count, 0)
    check = "compare with the test cases of a bundled program (default: for .bpte without --input), or with "
    check += "FILE.pt2, the torch.export program, run by PyTorch"
    parser.add_argument("--check", metavar="FILE.pt2", type=exported_file, nargs="?", const=True, help=check)
    parser.add_argument("--no-check", action="store_false", dest="check", help="call the method instead")
    parser.set_defaults(check=None)
    parser.add_argument(
        "--isolated",
        metavar="SECONDS",
        type=number(0),
        nargs="?",
        const=_SECONDS,
        help="run an untrusted program in a separate process, for at most SECONDS (default: %(const)g)",
    )
    options.precision()
    options.device()
    options.json()
    add_examples(
        parser,
        "pteron run model.pte",
        "pteron run model.pte --input x.npy --output results",
        "pteron run model.pte --dim 7 --repeat 20",
        "pteron run owner/name:model.pte      # a program of a hub",
        "pteron run model.pte --isolated",
        "pteron run model.pte --check model.pt2   # outputs beside those of PyTorch",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.runtime import load
    from pteron.tools.check import check_bundle, check_exported, check_lines
    from pteron.tools.run import place_of, run, run_lines, save_outputs

    path, name = find_program_file(arguments), Path(given_model(arguments)).name
    if arguments.isolated is not None and _MARK not in os.environ:
        return _run_isolated(given_model(arguments), arguments.given, arguments.isolated)
    selected = selection(arguments)
    with (
        show_progress(f"loading {name}") as progress,
        load(
            path,
            arguments.data,
            arguments.device,
            digits=arguments.digits,
            products=arguments.products,
        ) as program,
    ):
        check = arguments.check
        if check is None:
            check = program.bundle is not None and not selected.inputs
        if isinstance(check, str):
            cases, device = check_exported(program, check, selected), place_of(program)
        elif check:
            cases, device = check_bundle(program, arguments.method), place_of(program)
        else:
            report, outputs = run(program, selected, arguments.repeat, progress)
    if check:
        print_result(cases, check_lines(name, device, cases), as_json=arguments.json)
        return 1 if any(case.problem for case in cases) else 0
    paths = save_outputs(outputs, arguments.output) if arguments.output else []
    lines = [*run_lines(report), *(f"  wrote {path}" for path in paths)]
    print_result(report, lines, as_json=arguments.json)
    return 0


def exported_file(text: str) -> str:
    if not text.endswith(".pt2"):
        raise argparse.ArgumentTypeError(f"expected a file of torch.export.save (.pt2), not {text!r}")
    return text


def _run_isolated(program: str, given: list[str], seconds: float) -> int:
    """Run this command in a process of its own; its exit code."""
    start = started_in(Path.cwd())  # relative paths stay valid
    start["env"][_MARK] = "1"
    try:
        # In its own process group: Ctrl-C reaches this process, which ends the other.
        code = subprocess.run(
            python_module("pteron", *given), timeout=seconds, check=False, **new_process_group(), **start
        ).returncode
    except subprocess.TimeoutExpired:
        raise PteronError(f"{program}: took longer than {seconds:g} s and was ended") from None
    if code < 0:
        signals = {each.value: each.name for each in signal.Signals}
        raise PteronError(f"{program}: ended its process by {signals.get(-code, f'signal {-code}')}")
    return code
