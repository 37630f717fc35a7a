"""`doctor`: an adapter -> which kernels are wrong on it, a simpler route that is right, and a report to
send."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Protocol

from pteron import __version__
from pteron.extras import check_installed
from pteron.format.source import Source
from pteron.gpu import AdapterInfo, Device
from pteron.gpu.choose import choose
from pteron.gpu.exceptions import exceptions_file, write_exceptions
from pteron.ops import Target
from pteron.ops.target import PARTS
from pteron.tools import Progress, silent
from pteron.tools.doctor.probes import probe
from pteron.tools.doctor.replay import BuiltIn, Checked, OfProgram
from pteron.tools.doctor.report import Diagnosis, KernelCheck, Trial, checks_of

_LIBRARIES = ("wgpu", "wgpudawn", "numpy", "torch", "executorch")


class Subject(Protocol):
    """What is checked: the built-in set or a program."""

    name: str

    def check(
        self, device: Device, target: Target, only: Sequence[str] | None = None, progress: Progress = silent
    ) -> list[Checked]: ...


def doctor(
    source: str | os.PathLike[str] | None = None,
    *,
    data: Sequence[Source] = (),
    device: Device | str | None = None,
    write: bool = False,
    timing: bool = True,
    progress: Progress = silent,
) -> Diagnosis:
    """Check the kernels that a program, or by default a built-in set of operators, uses on an adapter.

    Every kernel runs at small and awkward sizes and is compared with float64 answers. If some are wrong,
    simpler targets are tried: without matrices, f16, packed dots, subgroups, and the kernels for the other
    kind of device. `write` saves the parts that are wrong as the adapter's exceptions: programs that later
    processes load do without them. If nothing is wrong, `write` removes the exceptions. A program needs
    PyTorch, the built-in set does not. `timing` also measures the adapter's rates.
    """
    started = time.perf_counter()
    if source is not None:
        check_installed(("torch",), "a program's float64 answers", "host")
    subject: Subject = BuiltIn() if source is None else OfProgram(source, data)
    adapter = device.adapter if isinstance(device, Device) else choose(device)
    with closing(Device(replace(adapter, exceptions=()))) as opened:  # with all parts, and not shared
        opened.check_open()
        found = subject.check(opened, opened.target, progress=progress)
        trials = list(_trials(subject, opened, found, progress)) if any(each.wrong for each in found) else []
        probes = probe(opened, timing=timing)
    right = next((trial.without for trial in trials if trial.is_right), None)
    without = () if not trials else right
    checks = checks_of(found)
    path = _file(adapter)
    if write and without is not None:
        write_exceptions(path, without, _about(adapter, checks))
    return Diagnosis(
        subject=subject.name,
        adapter=adapter.name,
        kind=adapter.kind,
        backend=adapter.backend,
        driver=adapter.driver,
        library=f"{adapter.library.name} {_version(adapter.library.distribution)}",
        features=adapter.features,
        subgroup_size=adapter.subgroup_size,
        limits=dict(adapter.limits),
        probes=probes,
        loop_limit_expected=adapter.loop_max,
        versions=_versions(),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        kernels=checks,
        trials=tuple(trials),
        without=without,
        exceptions=without if write and without is not None else adapter.exceptions,
        file=str(path),
        is_written=write and without is not None,
        seconds=time.perf_counter() - started,
    )


def simpler(target: Target) -> Iterator[tuple[str, ...]]:
    """Parts to do without: each alone, then more and more, the most special first."""
    used = [part for part in PARTS if target.without((part,)) != target]
    yield from ((part,) for part in used)
    for count in range(2, len(used) + 1):
        yield tuple(used[:count])


def _trials(
    subject: Subject, device: Device, found: Sequence[Checked], progress: Progress
) -> Iterator[Trial]:
    """Simpler targets up to the first that is right: for what was wrong, then for everything."""
    wrong = [each.name for each in found if each.wrong]
    for without in simpler(device.target):
        target = device.target.without(without)
        progress(f"trying without {', '.join(without)}", 0, 0)
        again = subject.check(device, target, wrong)
        if not any(each.wrong for each in again):
            again = subject.check(device, target, progress=progress)
        trial = Trial(without, tuple(check.kernel for check in checks_of(again) if check.wrong))
        yield trial
        if trial.is_right:
            return


def _file(adapter: AdapterInfo) -> Path:
    return exceptions_file(adapter.library.name, adapter.name, adapter.backend, adapter.driver)


def _about(adapter: AdapterInfo, checks: Sequence[KernelCheck]) -> dict[str, object]:
    return {
        "adapter": str(adapter),
        "driver": adapter.driver,
        "library": adapter.library.name,
        "pteron": __version__,
        "wrong": [check.kernel for check in checks if check.wrong],
    }


def _versions() -> Mapping[str, str]:
    found = {"pteron": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of an unknown version"
