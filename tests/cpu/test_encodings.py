"""Text files are UTF-8 in every locale: each call that reads or writes text names the encoding."""

from __future__ import annotations

import ast
from pathlib import Path

import pteron

ROOT = Path(pteron.__file__).parent
PLACE = {"read_text": 0, "write_text": 1}  # index of the encoding among a method's arguments


def unnamed(source: str) -> list[str]:
    """The calls in a source that depend on the locale's encoding."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [ast.unparse(call) for call in calls if _is_text(call) and not _names_encoding(call)]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def _is_text(call: ast.Call) -> bool:
    """Whether a call reads or writes text; a file is opened with its mode written out."""
    if any(keyword.arg in ("text", "universal_newlines") for keyword in call.keywords):
        return _name(call) in ("run", "Popen", "check_output")  # of another process
    if _name(call) == "open":
        modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        return any(isinstance(mode, str) and set(mode) <= set("rwaxt+") for mode in modes)
    return _name(call) in PLACE and not ast.unparse(call).startswith("metadata.")  # always UTF-8


def _names_encoding(call: ast.Call) -> bool:
    keywords = [keyword.value for keyword in call.keywords if keyword.arg == "encoding"]
    named = [*call.args[PLACE.get(_name(call), len(call.args)) :], *keywords]
    return any(isinstance(value, ast.Constant) and value.value == "utf-8" for value in named)


def test_every_file_names_its_encodings() -> None:
    files = sorted(ROOT.rglob("*.py"))
    found = {str(path.relative_to(ROOT)): unnamed(path.read_text(encoding="utf-8")) for path in files}
    assert len(files) > 300
    assert not {path: calls for path, calls in found.items() if calls}


def test_the_check_itself() -> None:
    for line in ("file.read_text()", "open(path, 'w')", "path.open('r')", "run([], text=True)"):
        assert unnamed(line)
    for line in ("file.read_text('utf-8')", "open(path, 'rb')", "open(path, 'w', encoding='utf-8')"):
        assert not unnamed(line)
