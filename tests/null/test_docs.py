"""Pages name files that exist, links lead somewhere, imports in examples work, and worn words stay out."""

from __future__ import annotations

import ast
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from pteron.cli import COMMANDS, build_parser

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pteron"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"])
FOLDERS = ("benchmarks", "docs", "examples", "native", "scripts", "src", "tests")
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_"))
ELSEWHERE = {"replay.py", "test_vulkan_delegate.py"}  # files that a command writes, or that ExecuTorch has

# Words that a reader of English as a second language reads twice; say who does what instead.
WORDS = (
    "whoever|nobody|anybody|heed|heeds|heeded|unheeded|midst|to be had|under way|"
    "(?:is|are|was|be) told|that there (?:is|are|was|were)|(?:lie|lies) in|stands? for|of which|so many"
)
# Trees whose text is free of them; patterns below the repository's root.
TREES = ("*.md", "docs/**/*.md", "benchmarks/*.md", "benchmarks/results/*.json")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def exists(folder: Path, path: str) -> bool:
    path = re.sub(r"<\w+>", "*", path.rstrip("/"))
    return any(folder.glob(path)) if "*" in path else (folder / path).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_exist(page: Path) -> None:
    """Paths in code or in prose: from the root, from src/pteron, and plain names of modules."""
    text = page.read_text("utf-8")
    folders = "|".join(FOLDERS)
    missing = [
        path
        for path in re.findall(rf"(?<![\w/.-])((?:{folders})/[\w/*.<>-]*[\w/*>])", text)
        if not exists(ROOT, path)
    ]
    for path in re.findall(r"`([\w/*.<>-]+)`", text):
        if re.match(rf"(?:{'|'.join(ROOMS)})/", path) and not path.startswith(
            tuple(f"{f}/" for f in FOLDERS)
        ):
            missing += [path] if not exists(PACKAGE, path) else []
        elif re.fullmatch(r"\w+\.(?:py|wgsl)", path) and path not in ELSEWHERE:
            trees = (ROOT / name for name in ("src", "benchmarks", "tests", "scripts", "examples"))
            missing += [path] if not any(next(tree.rglob(path), None) for tree in trees) else []
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_work(page: Path) -> None:
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page))):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert not missing


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_imports_in_examples_work(page: Path) -> None:
    missing = []
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pteron"):
                assert node.module is not None
                try:
                    module = importlib.import_module(node.module)
                    missing += [alias.name for alias in node.names if not hasattr(module, alias.name)]
                except ModuleNotFoundError as error:  # an extra that is not installed
                    missing += [node.module] if (error.name or "").startswith("pteron") else []
    assert not missing


def test_the_word_list() -> None:
    assert worn("Nobody is told, so\nmany lie in wait") == ["Nobody", "is told", "so\nmany", "lie in"]
    assert not worn("an anybodyish standing")


@pytest.mark.parametrize("pattern", TREES)
def test_words_do_not_come_back(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}" for path in ROOT.glob(pattern) for word in worn(written(path))
    ]
    assert not found


def test_help_is_plain() -> None:
    """The help of every command."""
    found = []
    for command in COMMANDS:
        commands = build_parser([command])._get_positional_actions()[0].choices
        assert isinstance(commands, dict)
        found += [f"{command}: {word}" for word in worn(commands[command].format_help())]
    assert not found


def worn(text: str) -> list[str]:
    words = WORDS.replace(" ", r"\s+")
    return re.findall(rf"\b(?:{words})\b", text, re.IGNORECASE)


def written(path: Path) -> str:
    """What a person reads of a file: all of a page, the comments and strings of a program."""
    text = path.read_text("utf-8")
    return "\n".join(_strings(text)) if path.suffix == ".py" else text


def _strings(text: str) -> Iterator[str]:
    kinds = (tokenize.COMMENT, tokenize.STRING)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield token.string
