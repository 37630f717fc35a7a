"""Damaged files are refused with a FormatError, or read; they never do anything else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from damage import damaged_copies, structure_of

from pteron.errors import FormatError
from pteron.format.bundled import read_bundled
from pteron.format.delegate import read_delegate
from pteron.format.program import read_program
from pteron.format.weights import read_weights

FIXTURES = Path(__file__).parent.parent / "fixtures"
# Copies of each file; for a longer search, set the variable.
COPIES = int(os.environ.get("PTERON_DAMAGED_COPIES", "2000"))
SECONDS_PER_FILE = 2.0
NAME = "damaged.pte"


def read_whole_program(data: bytes | memoryview) -> None:
    program = read_program(data, NAME)
    for method in program.methods:
        for delegate in method.delegates:
            read_delegate(delegate.blob, f"{NAME}, {method.name}", program.named_data.get)


def count_refused(read: Callable[[bytes], object], original: bytes, parts: Sequence[range], seed: int) -> int:
    """Read every damaged copy; any error but a FormatError that names the file fails the test."""
    read(original)
    refused = 0
    for done, data in damaged_copies(original, parts, COPIES, seed):
        began = time.perf_counter()
        complaint = None
        try:
            read(data)
        except FormatError as error:
            complaint = str(error)
            refused += 1
        except Exception as error:
            error.add_note(done)
            raise
        assert complaint is None or NAME in complaint, done
        assert time.perf_counter() - began < SECONDS_PER_FILE, done
    return refused


@pytest.mark.parametrize(
    "name",
    ["models/tiny_llama_q4_emb4", "programs/cond", "programs/mutable_buffer_host", "programs/no_segments"],
)
def test_damaged_programs(name: str) -> None:
    original = (FIXTURES / f"{name}.pte").read_bytes()
    refused = count_refused(read_whole_program, original, structure_of(original), seed=20)
    # Damage that always or never matters would mean that it goes to the wrong places.
    assert COPIES * 0.2 < refused < COPIES


def test_damaged_weight_files() -> None:
    original = (FIXTURES / "programs" / "external_weights.shard0.ptd").read_bytes()
    flatbuffer_end = sum(int.from_bytes(original[at : at + 8], "little") for at in (16, 24))
    assert count_refused(lambda data: read_weights(data, NAME), original, [range(flatbuffer_end)], seed=21)


def test_damaged_bundles() -> None:
    original = (FIXTURES / "programs" / "bundled.bpte").read_bytes()
    parts = [range(len(original))]
    assert count_refused(
        lambda data: read_whole_program(read_bundled(data, NAME).program), original, parts, 22
    )
