"""Whole programs, from load to results: what the exporter writes, damaged in its fields. What loads and runs
gives the same bits again from the same start."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from live_inputs import live_inputs

import pteron
from fuzz.executed import the_device
from fuzz.target import Target, Wrong, wrong_device
from fuzz.targets.files import PROGRAM_FIELDS, import_torch
from fuzz.targets.seeded_graphs import programs_of_operators, small_programs
from pteron.errors import DeviceError, HostError, MisfitError

_BYTES_MAX = 1 << 24  # of a call's inputs, and of what a program keeps on the device
_SEED_BYTES = 24 << 10


def _run(data: bytes, device: pteron.Device | None) -> str:
    program = pteron.load(data, device=device)
    calls = 0
    try:
        for name in program.methods:
            method = program[name]
            if sum(method.gpu_bytes.values()) > _BYTES_MAX:
                continue
            sets = list(live_inputs(method, fill=1, bytes_max=_BYTES_MAX))
            first, second = (_results(method, sets) for _ in range(2))
            if first != second:
                raise Wrong("again", f"method {name} gives other results after reset()")
            calls += sum(not isinstance(result, str) for result in first)
    finally:
        program.close()
    return "ran" if calls else "loaded"


def _results(method: pteron.Method, sets: Sequence[list[object]]) -> list[Any]:
    """What each call gives, as bytes, or the error that it ends in."""
    method.reset()
    found: list[Any] = []
    for inputs in sets:
        before = [given.copy() if isinstance(given, np.ndarray) else given for given in inputs]
        try:
            outputs = method(*inputs)
            found.append([o.tobytes() if isinstance(o, np.ndarray) else repr(o) for o in outputs])
        except (MisfitError, HostError, pteron.InputError) as error:
            found.append(type(error).__name__)
        for given, was in zip(inputs, before, strict=True):
            if isinstance(given, np.ndarray) and given.tobytes() != was.tobytes():  # type: ignore[attr-defined]
                raise Wrong("caller's array", "a call changed the array that it was given")
    return found


def _run_programs(data: bytes) -> str:
    device = the_device()
    own = device.adapter.is_cpu
    device.target = replace(device.target, is_cpu=own and zlib.crc32(data) % 2 == 0)
    try:
        return _run(data, device)
    except DeviceError as error:
        if "needs a buffer of" in str(error):
            return "too large here"
        raise wrong_device(error) from error


def _seeds() -> Iterator[bytes]:
    for data in (*small_programs(), *programs_of_operators()):
        if len(data) <= _SEED_BYTES:
            yield data


def _warm() -> None:
    """With what PyTorch imports and reserves at its first operators: no input's time, nor its memory. The
    gigabyte of addresses that its allocator takes on ARM counts against a limit."""
    import_torch()
    if torch := sys.modules.get("torch"):
        torch.cumsum(torch.empty(4, device="meta"), 0, out=torch.empty(4, device="meta"))
        torch.cumsum(torch.empty(1 << 20), 0)
    the_device()


PROGRAM_TARGETS = [
    Target(
        name="programs",
        run=_run_programs,
        seeds=_seeds,
        mutate=PROGRAM_FIELDS,
        suffix=".pte",
        seconds=20,
        megabytes=4096,
        on_device=True,
        share=3,
        warm=_warm,
    ),
]
