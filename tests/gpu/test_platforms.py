"""Pteron on other operating systems, as far as this machine can tell: the functions that they lack, consoles
of other encodings, paths of all kinds, file systems that ignore case."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import fake_windows
import numpy as np
import pytest

import pteron
from pteron.web.site import export_web

PACKAGE = Path(pteron.__file__).parent
ROOT = Path(__file__).parents[2]
# Letters of several alphabets, spaces, an apostrophe, brackets; longer than 260 characters in all.
AWKWARD = Path(
    "Zoë's models (x86) & more", "日本語 モデル", *(f"{'deep' * 10} {level}" for level in range(6))
)


def on_windows(code: str, *arguments: str) -> str:
    """What some code prints on a pretended Windows."""
    pytest.importorskip("uvicorn")
    done = subprocess.run(
        [sys.executable, "-c", f"import fake_windows; fake_windows.begin()\n{code}", *arguments],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_windows_runs_programs(programs: Path) -> None:
    """From a file, and from a folder, which is an error."""
    code = """
import sys, numpy, pteron
from pteron.format.source import open_bytes
x = numpy.ones((3, 7), numpy.float32)
with pteron.load(sys.argv[1]) as program:
    print(program["forward"](x)[0].shape)
try:
    open_bytes(".")
except pteron.PteronError as error:
    print(error)
"""
    assert (
        on_windows(code, str(programs / "mlp_dynamic.pte")) == "(3, 11)\n.: this is a directory, not a file\n"
    )


def test_windows_has_files_that_are_in_use(tmp_path: Path) -> None:
    """Files are replaced once their readers have closed them; if they stay open, the error says so."""
    code = """
import sys
from pathlib import Path
from pteron import PteronError
from pteron.folders import replace_file, writing_to
from pteron.system import free_memory, move, open_files_max
path = Path(sys.argv[1])
replace_file(path, b"1")
replace_file(path, b"2")
print(path.read_bytes(), [each.name for each in path.parent.iterdir()], free_memory(), open_files_max())
def refuse(self, target):
    raise PermissionError(13, "Access is denied")
Path.replace = refuse
try:
    with writing_to(path.parent):
        move(path, path.with_name("other"))
except PteronError as error:
    print(str(error).split("to: ")[1])
"""
    assert on_windows(code, str(tmp_path / "file")).splitlines() == [
        f"b'2' ['file'] {fake_windows.FREE_MEMORY} 8192",
        "[Errno 13] Access is denied; a program that has a file of it open must end first",
    ]


@pytest.mark.long
def test_windows_writes_and_serves_texts() -> None:
    """`serve` answers a request, and Ctrl-C ends it."""
    code = """
import json, re, signal, sys, threading, time, urllib.request
from pteron.llm import LLM
from pteron.cli import main
with LLM("stories15m") as llm:
    print("".join(piece.text for piece in llm.generate("Once upon", max_new_tokens=4)))

def ask():
    while not (found := re.search("http://[\\\\w.:]+", "".join(written))):
        time.sleep(0.05)
    asked = {"model": "stories15m", "prompt": "Once upon", "max_tokens": 4, "temperature": 0}
    body = json.dumps(asked).encode()
    request = urllib.request.Request(found[0] + "/v1/completions", body, {"Content-Type": "application/json"})
    try:
        answered.append(json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"])
    except Exception as error:
        answered.append(repr(error))
    signal.raise_signal(signal.SIGINT)

written, answered, write = [], [], sys.stdout.write
sys.stdout.write = lambda text: written.append(text) or len(text)
threading.Thread(target=ask, daemon=True).start()
code = main(["serve", "stories15m", "--port", "0"])
sys.stdout.write = write
print(answered[0], code)
"""
    first, second = on_windows(code).splitlines()
    assert second == f"{first} 0"


def test_functions_that_windows_lacks() -> None:
    """They are used where something checks for the system first."""
    used = defaultdict(set)
    lacked = {f"{module}.{name}" for module, names in fake_windows.FUNCTIONS.items() for name in names}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            names += [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
            for name in {*names} & {*lacked, *fake_windows.MODULES}:
                used[name].add(path.relative_to(PACKAGE).as_posix())
    assert used == {
        "os.preadv": {"format/source.py"},
        "os.register_at_fork": {"gpu/fork.py"},
        "os.sysconf": {"system.py"},
        "readline": {"cli/chat.py"},
        "resource": {"system.py"},
    }


@pytest.mark.long(every=2)
@pytest.mark.parametrize("encoding", ["cp1252", "cp932", "utf-16"])
def test_consoles_of_other_encodings(encoding: str, programs: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "pteron", "inspect", str(programs / "mlp_dynamic.pte")]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 0
    assert re.search(r"forward\(f32\[(≤|≦|<=)17, 7\]\)", done.stdout.decode(encoding))


def test_awkward_paths(tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program, its site and the cache in folders with long names, spaces and foreign letters."""
    folder = tmp_path / AWKWARD
    folder.mkdir(parents=True)
    assert len(str(folder)) > 260
    monkeypatch.setenv("PTERON_CACHE", str(folder / "cache"))
    path = folder / "modèle 1.pte"
    path.write_bytes((programs / "mlp_dynamic.pte").read_bytes())
    x = np.ones((3, 7), np.float32)
    with pteron.load(path) as program:
        assert program["forward"](x)[0].shape == (3, 11)
    site = export_web(path, folder / "site")
    assert (site.folder / "index.html").is_file()
    done = subprocess.run([sys.executable, "-m", "pteron", "inspect", str(path)], capture_output=True)
    assert done.returncode == 0
    assert "modèle 1.pte" in done.stdout.decode()


def test_names_of_files_suit_every_file_system() -> None:
    """No two differ in case alone, and none is reserved, or has characters that are, on Windows."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, cwd=ROOT, encoding="utf-8")
    names = listed.stdout.splitlines() or [
        path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file()
    ]
    assert len(names) > 500
    assert len({name.lower() for name in names}) == len(names)
    reserved = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
    parts = {part for name in names for part in name.split("/")}
    bad = [part for part in parts if reserved.fullmatch(part) or re.search(r'[<>:"|?*\\]', part)]
    assert not bad
    assert max(map(len, names)) < 160
