"""Sound delegate graphs, as blobs with their constants inside: what tests and upstream's suites export."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

from fuzz import FIXTURES, TESTS
from fuzz.draft import Draft
from pteron.errors import FormatError
from pteron.format.program import read_program

_BYTES_MAX = 1 << 16


def programs_of_operators() -> Iterator[bytes]:
    """A small program of each operator, some with live dims."""
    with zipfile.ZipFile(TESTS / "conformance" / "representative.zip") as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".pte"):
                yield archive.read(name)


def small_programs() -> Iterator[bytes]:
    for file in sorted((FIXTURES / "programs").glob("*.pte")):
        yield file.read_bytes()


def graph_seeds() -> Iterator[bytes]:
    """Their delegates."""
    for data in (*small_programs(), *programs_of_operators()):
        program = read_program(data, "seed")
        for method in program.methods:
            for delegate in method.delegates:
                blob = Draft.of(delegate.blob, program.named_data.get).blob()
                if len(blob) <= _BYTES_MAX and _is_whole(blob):
                    yield blob


def _is_whole(blob: bytes) -> bool:
    """Whether a graph has its constants: some programs keep them in weight files."""
    try:
        Draft.of(blob)
    except FormatError:
        return False
    return True
