"""A program -> figures of its plans: launches, kernels, guards, memory; and these as a file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import TypeAlias

from pteron.errors import InputError, MisfitError
from pteron.format.source import open_bytes, open_file
from pteron.ops import Target, Weight
from pteron.ops.terms import Guard, Symbol
from pteron.plan import Compiled, Plan
from pteron.tools.inputs import LiveSize
from pteron.tools.inspect.plans import plan_delegate, shapes_by_title
from pteron.tools.inspect.program import ExaminedMethod, ExaminedProgram, examine_program
from pteron.tools.local_adapter import LocalAdapter
from pteron.tools.profile.work import LaunchWork

MEMORY = ("weights", "states", "activations", "scratch")


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """A plan in numbers; memory and traffic in bytes."""

    launches: int
    weights: int
    states: int
    activations: int
    scratch: int
    read: int = 0  # by all launches of a call; 0 if it was not counted
    written: int = 0
    kernels: Mapping[str, int] | None = None
    guards: tuple[str, ...] = ()

    @property
    def memory(self) -> int:
        """All bytes on the device."""
        return self.weights + self.states + self.activations + self.scratch


Figures: TypeAlias = Mapping[str, PlanFigures]  # by method, delegate and shapes


def program_figures(
    path: str | os.PathLike[str],
    target: Target,
    data: Sequence[str | os.PathLike[str]] = (),
    method: str | None = None,
    *,
    sizes: Sequence[LiveSize] = (),
    integers: int = 0,
    traffic: bool = True,
) -> Figures:
    """The figures of a program's plans for a target: at the maximum shapes and 1, or at some sizes. `traffic`
    also counts the bytes of every launch."""
    local = LocalAdapter(target, "the target")
    examined = examine_program(open_bytes(path), data, method, local=local)
    return examined_figures(examined, os.fspath(path), sizes, integers, traffic=traffic)


def examined_figures(
    examined: ExaminedProgram, name: str, sizes: Sequence[LiveSize] = (), integers: int = 0, *, traffic: bool
) -> Figures:
    """The same of a program that was examined for a target."""
    found: dict[str, PlanFigures] = {}
    for method in examined.methods:
        for index, compiled in enumerate(method.compiled_for(examined.local.target)):
            found |= _delegate(method, index, compiled, sizes, integers, traffic)
    if not found:
        raise InputError(f"{name}: nothing of it runs on a GPU")
    return found


def _delegate(
    method: ExaminedMethod,
    index: int,
    compiled: Compiled,
    sizes: Sequence[LiveSize],
    integers: int,
    traffic: bool,
) -> dict[str, PlanFigures]:
    found: dict[str, PlanFigures] = {}
    name = method.report.name + (f", delegate {index}" if len(method.delegates) > 1 else "")
    for title, given in shapes_by_title(method.report.inputs, sizes).items():
        planned = plan_delegate(method, index, compiled, given, integers)
        try:
            figures = figures_of(compiled, planned.plan, planned.works if traffic else ())
        except MisfitError:  # these sizes do not fit together
            continue
        found[f"{name}, {title}"] = figures
    return found


def figures_of(compiled: Compiled, plan: Plan, works: Sequence[LaunchWork] = ()) -> PlanFigures:
    """The figures of one plan; traffic is that of `works`."""
    executable = compiled.executable
    bound = (buffer for launch in plan.launches for buffer in launch.buffers)
    weights = {*executable.weights(with_initial=False), *(each for each in bound if isinstance(each, Weight))}
    return PlanFigures(
        launches=len(plan.launches),
        weights=sum(weight.bytes for weight in weights),
        states=sum(state.bytes for state in executable.states.values()),
        activations=sum(executable.slots),
        scratch=sum(plan.scratch_bytes),
        read=sum(each.bytes_read for each in works),
        written=sum(each.bytes_written for each in works),
        kernels=dict(Counter(launch.module.kernel.name for launch in plan.launches).most_common()),
        guards=tuple(sorted({_guard_text(guard, compiled, plan) for guard in plan.guards})),
    )


def _guard_text(guard: Guard, compiled: Compiled, plan: Plan) -> str:
    """A guard with live integers by the inputs that they come from: ids differ from file to file."""
    names = {
        source.symbol: " and ".join(f"input {each}" for each in source.inputs)
        for source in compiled.executable.sources
    }
    terms = []
    for index, factor in guard.expression.terms:
        term = plan.tape[index]
        name = names.get(term.id, "a live integer") if isinstance(term, Symbol) else "a live term"
        terms.append(name if factor == 1 else f"{factor} · {name}")
    if guard.expression.constant or not terms:
        terms.append(str(guard.expression.constant))
    lower = "" if guard.low == -inf else f"{guard.low:g} <= "
    upper = "" if guard.high == inf else f" <= {guard.high:g}"
    return f"{lower}{' + '.join(terms)}{upper}"


# Files -------------------------------------------------------------------------------------------


def write_figures(path: Path, figures: Figures) -> None:
    """Write figures as JSON, to compare later plans with."""
    content = {
        title: {field.name: getattr(each, field.name) for field in fields(each)}
        for title, each in figures.items()
    }
    try:
        path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise InputError(f"the figures cannot be written: {error}") from None


def read_figures(path: Path) -> Figures:
    """Figures that `write_figures` wrote."""
    open_file(path).close()  # a clear message for missing files and folders
    try:
        content = json.loads(path.read_text("utf-8"))
        return {
            str(title): PlanFigures(**{**each, "guards": tuple(each.get("guards", ()))})
            for title, each in content.items()
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a file of `pteron inspect --figures`: {error}") from None
