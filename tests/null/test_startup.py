"""What a command imports: help nothing that takes time, and only what drives a GPU the driver's library."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pteron.cli import COMMANDS, build_parser

HEAVY = {"numpy", "wgpu", "cffi", "torch", "rich", "pteron.runtime.program"}
# What a look into a program does without: whatever drives GPUs, runs methods, draws, or is slow to import.
NEEDLESS = {
    *("cffi", "html", "importlib.metadata", "importlib.resources", "jinja2", "rich", "tempfile", "torch"),
    *("wgpu", "pteron.gpu", "pteron.host.lookup", "pteron.host.numpy_operators", "pteron.runtime.method"),
    *(
        "pteron.export",
        "pteron.llm",
        "pteron.runtime.program",
        "pteron.tools.inputs",
        "pteron.tools.inspect.page",
    ),
}


def imported(arguments: list[str], wanted: set[str]) -> set[str]:
    """Which of some modules a command has imported at its end."""
    code = (
        "import sys, contextlib; from pteron.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({arguments!r})\n"
        f"print(*({wanted!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    return set(done.stderr.split())


@pytest.mark.long(every=5)
@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["export", "llm"]], ids=" ".join)
def test_help_imports_nothing_that_takes_time(command: list[str]) -> None:
    assert imported([*command, "--help"], HEAVY) == set()


def test_inspect_imports_only_what_it_prints(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter named after "runs here" is looked up once and cached, until the environment changes."""
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    command = ["inspect", str(programs / "mlp.pte")]
    assert imported(command, NEEDLESS & {"torch", "rich", "pteron.llm", "pteron.runtime.program"}) == set()
    if not list(tmp_path.glob("adapters/*.json")):
        pytest.skip("no adapter, or its entry cannot be cached")
    assert imported([*command, "--json", "--graph"], NEEDLESS) == set()
    monkeypatch.setenv("VK_LOADER_DEBUG", "none")
    assert "wgpu" in imported(command, NEEDLESS)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._get_positional_actions():
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


ALL = {parser.prog: parser for parser in parsers(build_parser([*COMMANDS]))}


@pytest.mark.parametrize("name", ALL)
def test_help_has_examples_and_defaults(name: str) -> None:
    assert f"{name} " in ALL[name].format_help().partition("examples:")[2]
    for action in ALL[name]._actions:
        has_default = action.default not in (None, False, [], argparse.SUPPRESS)
        if has_default and action.option_strings and action.help != argparse.SUPPRESS:
            assert f"(default: {action.default}" in str(action.help) % vars(action)
