"""No loop stands where Ctrl-C, heeded as it jumps back, would skip the end of the block around it.

That is a fault of Python's, another in each version: what this finds is what the Python at hand would skip.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest
from interruption import unguarded_loops

import pteron

SOURCES = Path(pteron.__file__).parent
FOLDERS = "cli", "format", "gpu", "isolated", "llm", "runtime", "tools"
EXAMPLE = """
def before_the_block():  # python/cpython#108214
    try:
        while True: pass
    finally:
        print()

def after_a_condition(lock, numbers):  # python/cpython#130279
    with lock:
        return [number for number in numbers if number]
"""


def functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from functions(constant)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="what that one skips is not known")
def test_an_example() -> None:
    found = {each.co_name for each in functions(compile(EXAMPLE, "", "exec")) if unguarded_loops(each)}
    assert found == {"before_the_block" if sys.version_info < (3, 13) else "after_a_condition"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_loops_of_a_folder(folder: str) -> None:
    files = sorted((SOURCES / folder).rglob("*.py"))
    assert files
    found = {
        f"{file.relative_to(SOURCES)}:{line}"
        for file in files
        for code in functions(compile(file.read_bytes(), str(file), "exec"))
        for line in unguarded_loops(code)
    }
    assert not found, "let the block call a function with the loop"
