"""Imports only point to earlier stages, one package touches wgpu, and PyTorch is loaded when it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pteron

ROOT = Path(pteron.__file__).parent
STAGES = (
    {"errors", "dtypes", "extras", "folders", "processes", "package_files", "lazy"},
    {"format"},
    {"graph"},
    {"wgsl"},
    {"ops"},
    {"families"},
    {"passes"},
    {"plan"},
    {"gpu"},
    {"host"},
    {"runtime"},
    {"isolated"},
    {"export"},
    {"llm"},
    {"serving"},
    {"reference"},
    {"tools"},
    {"cli"},
)
STAGE_OF = {name: index for index, names in enumerate(STAGES) for name in names}
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
MODULES = {
    ".".join(("pteron", *path.with_suffix("").parts)).removesuffix(".__init__"): path for path in FILES
}
# Imported only by torch.compile, for a program with an ATen operator on the host, or to compare with PyTorch.
WITH_TORCH = {
    Path("export/dynamo.py"),
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


def test_only_gpu_imports_wgpu() -> None:
    importing = {path.parts[0] for path in FILES if "wgpu" in {packages(m) for m, _ in imports(path)}}
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
        ("import pteron.cli; pteron.cli.build_parser(['--help'])", ["numpy", "wgpu"]),  # help is quick
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
