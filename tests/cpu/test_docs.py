"""Pages name files that exist, links lead somewhere, imports and commands of examples work."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from pteron.cli import build_parser

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pteron"
PAGES = sorted(
    page for tree in ("*.md", "docs/**/*.md", "benchmarks/*.md", "tests/*/*.md") for page in ROOT.glob(tree)
)
FOLDERS = "benchmarks|docs|examples|native|scripts|src|tests"
ROOMS = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__")
# Files that a command writes, that ExecuTorch has, and that the tutorial has its reader write.
ELSEWHERE = {"replay.py", "test_vulkan_delegate.py", "families/triangle/", "triangle.py", "triangle.wgsl"}


def test_files_exist() -> None:
    """Paths in code and in prose: from the root, from src/pteron, and plain names of modules."""
    missing = [f"{page.relative_to(ROOT)}: {path}" for page in PAGES for path in missing_files(page)]
    assert not missing


def missing_files(page: Path) -> Iterator[str]:
    text = page.read_text("utf-8")
    for path in re.findall(rf"(?<![\w/.-])((?:{FOLDERS})/[\w/*.<>-]*[\w/*>])", text):
        if not exists(ROOT, path):
            yield path
    for path in set(re.findall(r"`([\w/*.<>-]+)`", text)) - ELSEWHERE:
        in_room = re.match(rf"(?:{ROOMS})/", path)
        is_name = re.fullmatch(r"\w+\.(?:py|wgsl)", path)
        if in_room and not exists(PACKAGE, path) and not exists(ROOT, path):
            yield path
        if is_name and not any(exists(ROOT, f"{folder}/**/{path}") for folder in FOLDERS.split("|")):
            yield path


def exists(folder: Path, path: str) -> bool:
    path = re.sub(r"<\w+>", "*", path.rstrip("/"))
    return any(folder.glob(path)) if "*" in path else (folder / path).exists()


def test_links_work() -> None:
    broken = [f"{page.relative_to(ROOT)}: {link}" for page in PAGES for link in broken_links(page)]
    assert not broken


def broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page))):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not link.startswith("https://") and (
            not target.exists() or (anchor and anchor not in anchors(target))
        ):
            yield link


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_begins_with_commands_of_a_clone() -> None:
    """Until the package is published, the first screen needs no index and no other repository."""
    start, _, rest = (ROOT / "README.md").read_text("utf-8").partition("```sh\n")
    commands, _, rest = rest.partition("\n```")
    scripts = [line.split("#")[0].strip() for line in commands.splitlines()]
    assert scripts == ["scripts/demo", "scripts/test"]
    assert len(start.splitlines()) < 10
    assert not re.search(r"\b[A-Z]+_[A-Z_]+\b", rest.partition("\n## ")[0]), "a placeholder"
    assert not re.search(r"pip install|git clone|://", start)
    assert not re.search(r"pip install +\"?pteron", rest)
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= 140


def test_only_one_page_says_how_to_install_without_a_clone() -> None:
    """`pip install "pteron[...]"` adds an extra to an installed Pteron; plain `pteron` needs an index."""
    pages = [*PAGES, *ROOT.glob("docs/**/*.ipynb"), *ROOT.glob("deploy/*"), *ROOT.glob("examples/**/*.py")]
    found = [
        page.name
        for page in pages
        if re.search(r"pip install (-q )?pteron(?![\w\[])", page.read_text("utf-8"))
    ]
    assert set(found) <= {"CHANGELOG.md", "RELEASING.md"}
    assert "not published yet" in (ROOT / "docs" / "install.md").read_text("utf-8")


def test_imports_in_examples_work() -> None:
    missing = [f"{page.relative_to(ROOT)}: {name}" for page in PAGES for name in missing_imports(page)]
    assert not missing


def missing_imports(page: Path) -> Iterator[str]:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(block)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("pteron"):
                continue
            assert node.module is not None
            try:
                module = importlib.import_module(node.module)
                yield from [alias.name for alias in node.names if not hasattr(module, alias.name)]
            except ModuleNotFoundError as error:  # a wrong name, or an extra that is not installed
                if (error.name or "").startswith("pteron"):
                    yield node.module


# Pages whose examples run in their order, and the files that they find beside them.
EXAMPLES = {
    "python": {name: name for name in ("mlp_dynamic.pte", "named_inputs.pte", "mutable_buffer.pte")},
    "service": {"mlp_dynamic.pte": "model.pte"},
}


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_run(page: str, programs: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    for source, name in EXAMPLES[page].items():
        assert name in text
        shutil.copy(programs / source, tmp_path / name)
    script = tmp_path / "examples.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_the_container_of_a_service_is_the_servers() -> None:
    """What its image needs is said twice: in a page, and in deploy/Containerfile, which is tried."""
    (page,) = re.findall(
        r"```dockerfile\n(.*?)```", (ROOT / "docs" / "service.md").read_text("utf-8"), re.DOTALL
    )
    known = (ROOT / "deploy" / "Containerfile").read_text("utf-8")
    shared = re.findall(r"^(?:FROM|RUN (?:apt|useradd)|    &&|USER|ENV).*", page, re.MULTILINE)
    assert len(shared) >= 6
    assert [line for line in shared if line not in known] == []


def test_commands_are_valid() -> None:
    """Lines of examples that begin with `pteron`: commands, options and values that the parser takes."""
    lines = [(page, line) for page in PAGES for line in command_lines(page)]
    assert len(lines) > 60
    assert [f"{page.relative_to(ROOT)}: {line}" for page, line in lines if not is_valid(line)] == []


def command_lines(page: Path) -> Iterator[str]:
    for line in page.read_text("utf-8").replace("\\\n", " ").splitlines():
        found = re.match(r" *(?:\$ )?(?:[A-Z_]+=\S+ )*pteron ([^`]+)$", line)
        if found and "[-" not in line:  # a synopsis
            yield found[1]


def is_valid(line: str) -> bool:
    arguments = list(
        takewhile(lambda word: word not in ("|", ">", "&", "&&"), shlex.split(line, comments=True))
    )
    try:
        build_parser(arguments).parse_args(arguments)
    except SystemExit as error:
        return not error.code
    return True
