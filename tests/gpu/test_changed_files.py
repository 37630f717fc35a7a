"""A program whose file changes while it is open gives an error or goes on; no signal ends the process."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import FormatError
from pteron.format import source
from pteron.gpu import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files do not shrink under a map elsewhere")


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are mapped whatever their size."""
    monkeypatch.setattr(source, "_SMALL", 0)


@pytest.mark.usefixtures("mapped")
@pytest.mark.parametrize("size", [0, 4096])
def test_a_program_that_shrinks_before_its_first_use(programs: Path, tmp_path: Path, size: int) -> None:
    path = tmp_path / "program.pte"
    shutil.copy(programs / "attention_cache.pte", path)
    program = pteron.load(path)
    os.truncate(path, size)
    with pytest.raises(FormatError, match=r"program\.pte changed since it was loaded: load it again"):
        program["forward"]


def inputs_of(method: pteron.Method) -> list[Any]:
    """Zeros, in the smallest shapes."""
    return [
        np.zeros(
            [1 if dynamic else size for size, dynamic in zip(spec.shape_max, spec.dynamic, strict=True)]
        ).astype(spec.dtype.numpy)
        if spec.dtype
        else spec.value
        for spec in method.inputs
    ]


def test_weights_uploaded_in_pieces_are_the_same(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = models / "tiny_llama_q4.pte"
    with pteron.load(path) as program:
        expected = program["forward"](*inputs_of(program["forward"]))
    write, starts = pteron.Device.write, []

    def record(device: pteron.Device, buffer: Any, data: Any, offset: int = 0) -> None:
        starts.append(offset)
        write(device, buffer, data, offset)

    monkeypatch.setattr(source, "_SMALL", 0)
    monkeypatch.setattr(memory, "_STAGING", 64)
    monkeypatch.setattr(pteron.Device, "write", record)
    with pteron.load(path) as program:
        found = program["forward"](*inputs_of(program["forward"]))
    assert any(starts)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("mapped")
def test_a_program_that_shrinks_after_its_first_use_goes_on(programs: Path, tmp_path: Path) -> None:
    """Its weights are on the GPU. What would be read again is an error."""
    path = tmp_path / "program.pte"
    shutil.copy(programs / "attention_cache.pte", path)
    method = pteron.load(path)["forward"]
    inputs = inputs_of(method)
    before = method(*inputs)
    os.truncate(path, 4096)
    for first, second in zip(before, method(*inputs), strict=True):
        assert np.shape(first) == np.shape(second)
