"""Imports only point to earlier stages, one package touches WebGPU libraries, and PyTorch is loaded where it
is needed."""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pteron
from pteron.cli import COMMANDS, build_parser

ROOT = Path(pteron.__file__).parent
STAGES = (
    {"errors", "dtypes", "extras", "folders", "processes", "package_files", "lazy", "system"},
    {"format"},
    {"names"},
    {"graph"},
    {"wgsl"},
    {"ops"},
    {"families"},
    {"passes"},
    {"plan"},
    {"gpu"},
    {"host"},
    {"runtime"},
    {"export"},
    {"llm"},
    {"speech"},
    {"embeddings"},
    {"serving"},
    {"reference"},
    {"tools"},
    {"web"},
    {"cli"},
)
STAGE_OF = {name: index for index, names in enumerate(STAGES) for name in names}
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
MODULES = {
    ".".join(("pteron", *path.with_suffix("").parts)).removesuffix(".__init__"): path for path in FILES
}
# Imported only to compile a module, for an ATen operator on the host, or to compare with PyTorch.
_COMPILING = (
    "captured complex_numbers copies dynamo edge partitioner recurrence stepped steps transformer_operators"
)
WITH_TORCH = {
    *(Path("export", f"{name}.py") for name in _COMPILING.split()),
    Path("host/torch_operators.py"),
    Path("tools/compare/float64.py"),
    *(path for path in FILES if path.parent == Path("reference")),
}


@cache
def imports(path: Path, *, at_import: bool = False) -> list[tuple[str, int]]:
    """(module, line) of what a file imports; `at_import`: only what importing the file loads."""
    return list(_imports(path, at_import))


def _imports(path: Path, at_import: bool) -> Iterator[tuple[str, int]]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    nodes = _executed(tree.body) if at_import else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports by a relative name"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield (inner if inner in MODULES or module == "pteron" else module), node.lineno


def _executed(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that run when a module is imported: not functions, not `if TYPE_CHECKING`."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement
            yield from _executed(
                [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
            )


def packages(module: str) -> str:
    return module.split(".")[0]


def test_imports_point_to_earlier_stages() -> None:
    later = []
    for path in FILES:
        own = STAGE_OF.get(path.parts[0].removesuffix(".py"), len(STAGES))
        for module, line in imports(path):
            parts = module.split(".")
            if parts[0] == "pteron" and STAGE_OF.get(".".join(parts[1:2]), 0) > own:
                later.append(f"{path}:{line} imports the later stage {module}")
    assert not later


def test_no_module_imports_itself_through_others() -> None:
    """Nor inside functions, nor for its annotations alone."""
    graph = {
        name: {module for module, _ in imports(path) if module in MODULES} for name, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules that import each other: {' <- '.join(error.args[1])}")


def test_every_package_has_a_stage() -> None:
    names = {path.parts[0].removesuffix(".py") for path in FILES} - {"__init__", "__main__"}
    assert names == STAGE_OF.keys()


def test_only_gpu_imports_webgpu_libraries() -> None:
    libraries = {"wgpu", "wgpudawn"}
    importing = {path.parts[0] for path in FILES if libraries & {packages(m) for m, _ in imports(path)}}
    assert importing == {"gpu"}


def test_torch_is_imported_where_it_is_used() -> None:
    heavy = {"torch", "torchao", "executorch"}
    loading = {
        path for path in FILES if heavy & {packages(module) for module, _ in imports(path, at_import=True)}
    }
    assert loading <= WITH_TORCH


def test_what_imports_torch_is_imported_where_it_is_used() -> None:
    with_torch = {name for name, path in MODULES.items() if path in WITH_TORCH}
    for path in FILES:
        if path not in WITH_TORCH:
            assert not with_torch & {module for module, _ in imports(path, at_import=True)}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import pteron, pteron.cli, pteron.tools", ["torch"]),
        ("import pteron; pteron.load", ["torch", "pteron.export"]),
    ],
)
def test_imports_are_lazy(code: str, absent: list[str]) -> None:
    found = f"{code}\nimport sys; print({{*{absent!r}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_public_name_has_a_home() -> None:
    for name in pteron.__all__:
        assert getattr(pteron, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        pteron.nothing  # noqa: B018


IN_THREADS = """
import threading
lines = ["import pteron; pteron.load", "import pteron.llm; pteron.llm.LLM", "from pteron import Device"] * 3
barrier, failed = threading.Barrier(len(lines)), []
def run(line):
    barrier.wait()
    try:
        exec(line, {})
    except BaseException as error:
        failed.append(f"{line}: {error!r}")
threads = [threading.Thread(target=run, args=(line,)) for line in lines]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
print(failed, any(thread.is_alive() for thread in threads))
"""


def test_threads_import_at_once() -> None:
    """Any thread may import the public modules at any time. Private modules may not be imported while another
    thread imports `pteron`: Python locks a module before its parent packages, which would then deadlock."""
    done = subprocess.run([sys.executable, "-c", IN_THREADS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


# Commands ----------------------------------------------------------------------------------------


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
