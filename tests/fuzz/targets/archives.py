"""Executables on disk, whose header is JSON: read, and run unless they request unbounded work."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np

from fuzz.executed import the_device
from fuzz.mutation.havoc import havoc
from fuzz.mutation.json_tree import change, encoded
from fuzz.target import Target
from fuzz.targets.seeded_graphs import graph_seeds
from pteron.errors import DeviceError, InputError
from pteron.format.delegate import read_delegate
from pteron.graph import build
from pteron.passes import prepare
from pteron.plan import Compiled, Executable, TensorPort
from pteron.plan.archive import read, write
from pteron.plan.archive.writer import MAGIC, PREFIX, VERSION, aligned
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Counters, Session

_SEEDS = 24
_BYTES_MAX = 1 << 24
_GROUPS_MAX = 1 << 12


@cache
def _archives() -> tuple[bytes, ...]:
    """Executables of sound graphs, with a plan each, for the device there is."""
    found: list[bytes] = []
    for blob in list(graph_seeds())[::5][:_SEEDS]:
        compiled = Compiled(
            prepare(build(read_delegate(memoryview(blob), "seed", lambda key: None))), the_device().target
        )
        at_most = compiled.plan_at_maximum()
        if at_most is None:
            continue
        executable = replace(compiled.executable, plans={compiled.shapes_max: [at_most[0]]})
        with tempfile.NamedTemporaryFile() as file:
            write(executable, file.name)
            found.append(Path(file.name).read_bytes())
    return tuple(found)


@cache
def _known() -> frozenset[object]:
    """The kernels and parameters that sound archives have."""
    executables = [read(memoryview(data), "seed") for data in _archives()]
    plans = [plan for executable in executables for plan in executable.all_plans()]
    kernels = {launch.module.source for plan in plans for launch in plan.launches}
    return frozenset(kernels | {block.data for plan in plans for block in plan.blocks})


def _run(data: bytes) -> str:
    executable = read(memoryview(data), "fuzzed.ptex")
    if _bytes(executable) > _BYTES_MAX or not _is_harmless(executable):
        return "read"
    device = the_device()
    try:
        session = Session(executable, device, Counters())
    except DeviceError:
        return "refused by the device"
    try:
        states = session.states()
        wanted = [
            Wanted(port.dtype, on_gpu=False) if isinstance(port, TensorPort) else None
            for port in executable.outputs
        ]
        for shapes in executable.plans:
            inputs = [
                np.ones(shape or (), port.dtype.numpy) if isinstance(port, TensorPort) else 0
                for port, shape in zip(executable.inputs, shapes, strict=False)
            ]
            if len(inputs) == len(executable.inputs):
                session.run(inputs, wanted, states)
        device.wait()
    except (DeviceError, InputError):
        return "refused at a call"
    finally:
        session.close()
    return "ran"


def _bytes(executable: Executable) -> int:
    """The memory that it requests."""
    states = sum(state.bytes for state in executable.states.values())
    scratch = sum(sum(plan.scratch_bytes) for plan in executable.all_plans())
    ports = sum(
        math.prod(port.shape_max) * 8
        for port in (*executable.inputs, *executable.outputs)
        if isinstance(port, TensorPort)
    )
    shapes = sum(math.prod(shape or ()) * 8 for live in executable.plans for shape in live)
    weights = sum(weight.bytes for weight in executable.weights())
    return sum(executable.slots) + states + scratch + ports + shapes + weights


def _is_harmless(executable: Executable) -> bool:
    """Kernels and parameters are known, and grids small: a stranger's may keep the device busy for ever."""
    for plan in executable.all_plans():
        if any(block.live or block.data not in _known() for block in plan.blocks):
            return False
        for launch in plan.launches:
            if launch.module.source not in _known() or math.prod(launch.groups) > _GROUPS_MAX:
                return False
    return True


def _mutate(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
    """A change to the header's JSON, its length kept right; or to any bytes."""
    parts = _parts(data)
    if parts is None or random.random() < 0.1:
        return havoc(data, random, other)
    header, body = parts
    mate = _parts(other())
    text = encoded(change(header, random, lambda: mate[0] if mate else {}))
    prefix = PREFIX.pack(MAGIC, VERSION, len(text))
    return (prefix + text).ljust(aligned(PREFIX.size + len(text))) + body


def _parts(data: bytes) -> tuple[object, bytes] | None:
    if len(data) < PREFIX.size:
        return None
    length = PREFIX.unpack_from(data)[2]
    try:
        header = json.loads(data[PREFIX.size : PREFIX.size + length])
    except (ValueError, RecursionError):
        return None
    return header, data[aligned(PREFIX.size + length) :]


def _seeds() -> Iterator[bytes]:
    return iter(_archives())


ARCHIVE_TARGETS = [
    Target(
        name="archive",
        run=_run,
        seeds=_seeds,
        mutate=_mutate,
        watched=(
            "plan/archive/*.py",
            "gpu/recording.py",
            "gpu/memory.py",
            "runtime/session.py",
            "runtime/staging.py",
        ),
        suffix=".ptex",
        seconds=10,
        megabytes=2048,
        on_device=True,
        restart_after=5000,
        warm=_known,
    )
]
