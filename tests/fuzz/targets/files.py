"""The files a program comes in: .pte, .bpte, .ptd and the blobs of delegates, read and described."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from fuzz import FIXTURES
from fuzz.mutation.flatbuffers import either, field_mutation, header_mutation
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


def programs() -> Iterator[bytes]:
    """The small programs of the tests."""
    for file in sorted((FIXTURES / "programs").glob("*.pte")):
        if file.stat().st_size <= _SMALL:
            yield file.read_bytes()


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
    return "read"


def import_torch() -> None:
    """Where it is there: its time and memory are no input's."""
    if importlib.util.find_spec("torch"):
        import torch  # noqa: F401


def _inspect(data: bytes) -> str:
    list(inspect_lines(inspect(data, graph=True)))  # type: ignore[arg-type]  # bytes open as paths do
    return "described"


def _run_bundled(data: bytes) -> str:
    bundle = read_bundled(data, "fuzzed.bpte")
    read_program(bundle.program, "fuzzed.bpte")
    return "read"


def _run_weights(data: bytes) -> str:
    read_weights(data, "fuzzed.ptd")
    return "read"


def blobs() -> Iterator[bytes]:
    """The delegates of small programs."""
    for data in programs():
        program = read_program(data, "seed")
        for method in program.methods:
            for delegate in method.delegates:
                yield bytes(delegate.blob)


def read_blob(data: bytes) -> None:
    read_delegate(memoryview(data), "blob", _missing)


def _missing(key: str) -> None:
    return None


def _run_delegate(data: bytes) -> str:
    graph = build(read_delegate(memoryview(data), "blob", _missing))
    if missing_operators(graph):
        return "unsupported"
    prepare(graph)
    return "prepared"


def _weight_files() -> Iterator[bytes]:
    for file in sorted((FIXTURES / "programs").glob("*.ptd")):
        yield file.read_bytes()


def _bundles() -> Iterator[bytes]:
    yield (FIXTURES / "programs" / "bundled.bpte").read_bytes()


def _read_either(data: bytes) -> None:
    bundle = read_bundled(data, "seed")
    try:
        read_whole_program(bytes(bundle.program))
    except PteronError:
        return


PROGRAM_FIELDS = either(
    (9, field_mutation(read_whole_program)),
    (1, header_mutation((0, "I"), (12, "I"), (16, "Q"), (24, "Q"), (32, "Q"))),
)
BLOB_FIELDS = either(
    (9, field_mutation(read_blob)), (1, header_mutation((8, "H"), (10, "I"), (14, "I"), (18, "I"), (22, "Q")))
)
_FORMAT = ("format/*.py",)

FILE_TARGETS = [
    Target(
        name="program",
        run=_run_program,
        seeds=programs,
        mutate=PROGRAM_FIELDS,
        watched=(*_FORMAT, "graph/*.py", "passes/*.py"),
        suffix=".pte",
    ),
    Target(
        name="inspect",
        run=_inspect,
        seeds=programs,
        mutate=PROGRAM_FIELDS,
        watched=("tools/inspect/*.py", "tools/text.py"),
        suffix=".pte",
        seconds=4,
        warm=import_torch,
    ),
    Target(
        name="delegate",
        run=_run_delegate,
        seeds=blobs,
        mutate=BLOB_FIELDS,
        watched=("format/delegate*.py", "format/flatbuffer.py", "graph/*.py", "passes/*.py"),
        suffix=".blob",
    ),
    Target(
        name="bundled",
        run=_run_bundled,
        seeds=_bundles,
        mutate=field_mutation(_read_either),
        watched=("format/bundled.py", "format/flatbuffer.py", "format/tensor_layout.py"),
        suffix=".bpte",
    ),
    Target(
        name="weights",
        run=_run_weights,
        seeds=_weight_files,
        mutate=either(
            (7, field_mutation(read_weights)),
            (3, header_mutation((12, "I"), (16, "Q"), (24, "Q"), (32, "Q"), (40, "Q"))),
        ),
        watched=(
            "format/weights.py",
            "format/stored.py",
            "format/flatbuffer.py",
            "format/tensor_layout.py",
        ),
        suffix=".ptd",
    ),
]
