"""The files a program comes in, read and described: .pte with its delegates, .bpte, .ptd."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import suppress

from fuzz import FIXTURES
from fuzz.mutation.flatbuffers import field_mutation
from fuzz.target import Target
from pteron.errors import PteronError
from pteron.format.bundled import read_bundled
from pteron.format.delegate import read_delegate
from pteron.format.program import read_program
from pteron.format.weights import read_weights
from pteron.graph import build
from pteron.passes import missing_operators, prepare
from pteron.tools.inspect import inspect
from pteron.tools.inspect.report import inspect_lines

_SMALL = 16 << 10  # bytes of a seed


def _fixtures(pattern: str) -> Callable[[], Iterator[bytes]]:
    files = sorted((FIXTURES / "programs").glob(pattern))
    return lambda: (file.read_bytes() for file in files if file.stat().st_size <= _SMALL)


programs = _fixtures("*.pte")


def read_whole_program(data: bytes) -> None:
    """Everything that reading a program looks at, its delegates included."""
    program = read_program(data, "fuzzed.pte")
    for method in program.methods:
        for delegate in method.delegates:
            read_delegate(delegate.blob, "delegate", program.named_data.get)


def _run_program(data: bytes) -> str:
    program = read_program(data, "fuzzed.pte")
    for method in program.methods:
        for delegate in method.delegates:
            graph = build(read_delegate(delegate.blob, "delegate", program.named_data.get))
            if not missing_operators(graph):
                prepare(graph)
    list(inspect_lines(inspect(data, graph=True)))  # type: ignore[arg-type]  # bytes open as paths do
    return "described"


def import_torch() -> None:
    """Where it is there: its time and memory are no input's."""
    if importlib.util.find_spec("torch"):
        import torch  # noqa: F401


def _run_bundled(data: bytes) -> str:
    read_program(read_bundled(data, "fuzzed.bpte").program, "fuzzed.bpte")
    return "read"


def _read_bundled_whole(data: bytes) -> None:
    bundle = read_bundled(data, "seed")
    with suppress(PteronError):
        read_whole_program(bytes(bundle.program))


def _run_weights(data: bytes) -> str:
    read_weights(data, "fuzzed.ptd")
    return "read"


PROGRAM_FIELDS = field_mutation(read_whole_program, ((0, 4), (12, 4), (16, 8), (24, 8), (32, 8)))

FILE_TARGETS = [
    Target(
        name="program",
        run=_run_program,
        seeds=programs,
        mutate=PROGRAM_FIELDS,
        suffix=".pte",
        seconds=4,
        warm=import_torch,
    ),
    Target(
        name="bundled",
        run=_run_bundled,
        seeds=_fixtures("*.bpte"),
        mutate=field_mutation(_read_bundled_whole),
        suffix=".bpte",
    ),
    Target(
        name="weights",
        run=_run_weights,
        seeds=_fixtures("*.ptd"),
        mutate=field_mutation(read_weights, ((12, 4), (16, 8), (24, 8), (32, 8), (40, 8))),
        suffix=".ptd",
    ),
]
