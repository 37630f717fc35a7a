"""A program -> figures of its plans: launches, kernels, guards, memory; and what differs between two."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from pteron.tools.inspect.program import ExaminedMethod, examine_program
from pteron.tools.inspect.shapes import delegate_shapes, shapes_by_title
from pteron.tools.local_adapter import LocalAdapter
from pteron.tools.profile.work import work_of
from pteron.tools.text import Line, columns, counted, human_bytes

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
    found: dict[str, PlanFigures] = {}
    for each in examined.methods:
        for index, delegate in enumerate(each.delegates):
            if delegate.compiled is None:
                problems = "; ".join(delegate.report.problems) or "its graph cannot be compiled"
                raise InputError(f"{os.fspath(path)}, {each.report.name}, delegate {index}: {problems}")
            compiled = Compiled(delegate.compiled.prepared, target)
            found |= _delegate(each, index, compiled, sizes, integers, traffic)
    if not found:
        raise InputError(f"{os.fspath(path)}: nothing of it runs on a GPU")
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
    values = {source.symbol: integers for source in compiled.executable.sources}
    name = method.report.name + (f", delegate {index}" if len(method.delegates) > 1 else "")
    for title, given in shapes_by_title(method.report.inputs, sizes).items():
        shapes, _ = delegate_shapes(method, index, compiled, given, integers)
        try:
            plan = compiled.plan(shapes, values)
        except MisfitError:  # these sizes do not fit together
            continue
        works = work_of(compiled.prepared.graph, compiled.target, shapes, values) if traffic else []
        read, written = sum(each.bytes_read for each in works), sum(each.bytes_written for each in works)
        found[f"{name}, {title}"] = figures_of(compiled, plan, read, written)
    return found


def figures_of(compiled: Compiled, plan: Plan, read: int = 0, written: int = 0) -> PlanFigures:
    """The figures of one plan."""
    executable = compiled.executable
    launches = executable.once.launches + plan.launches
    bound = [buffer for launch in launches for buffer in launch.buffers]
    first = [state.initial for state in executable.states.values()]
    weights = {each for each in (*bound, *first) if isinstance(each, Weight)}
    return PlanFigures(
        launches=len(plan.launches),
        weights=sum(weight.bytes for weight in weights),
        states=sum(state.bytes for state in executable.states.values()),
        activations=sum(executable.slots),
        scratch=sum(plan.scratch_bytes),
        read=read,
        written=written,
        kernels=dict(Counter(launch.module.kernel.name for launch in plan.launches).most_common()),
        guards=tuple(sorted({_guard_text(guard, compiled, plan) for guard in plan.guards})),
    )


def _guard_text(guard: Guard, compiled: Compiled, plan: Plan) -> str:
    """A guard with live integers by the inputs that they come from: ids differ from file to file."""
    names = {source.symbol: f"input {source.input}" for source in compiled.executable.sources}
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


# Differences -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanChange:
    """What changed from one plan to another: numbers by name, kernels by count, guards."""

    title: str
    before: PlanFigures | None  # None: only the other has this plan
    after: PlanFigures | None
    numbers: Mapping[str, tuple[int, int]]
    kernels: Mapping[str, tuple[int, int]]
    guards_gone: tuple[str, ...] = ()
    guards_new: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        changed = self.numbers or self.kernels or self.guards_gone or self.guards_new
        return self.before is not None and self.after is not None and not changed


def changes_of(before: Figures, after: Figures) -> tuple[PlanChange, ...]:
    """A change for every plan of either program. Plans of the same method, delegate and shapes are compared;
    if each program has one plan, these two are."""
    if len(before) == len(after) == 1:
        (title, old), (_, new) = *before.items(), *after.items()
        return (_change(title, old, new),)
    titles = dict.fromkeys((*before, *after))
    return tuple(_change(title, before.get(title), after.get(title)) for title in titles)


def _change(title: str, before: PlanFigures | None, after: PlanFigures | None) -> PlanChange:
    if before is None or after is None:
        return PlanChange(title, before, after, {}, {})
    names = ("launches", *MEMORY, "read", "written")
    numbers = {name: (getattr(before, name), getattr(after, name)) for name in names}
    old, new = Counter(before.kernels or {}), Counter(after.kernels or {})
    kernels = {name: (old[name], new[name]) for name in sorted({*old, *new})}
    return PlanChange(
        title,
        before,
        after,
        {name: pair for name, pair in numbers.items() if pair[0] != pair[1]},
        {name: pair for name, pair in kernels.items() if pair[0] != pair[1]},
        tuple(guard for guard in before.guards if guard not in after.guards),
        tuple(guard for guard in after.guards if guard not in before.guards),
    )


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """Two programs, planned for the same target."""

    before: str
    after: str
    target: str
    changes: tuple[PlanChange, ...]

    @property
    def is_same(self) -> bool:
        return all(change.is_same for change in self.changes)


def difference_lines(report: PlanDifference) -> Iterator[str]:
    """The changes of each plan; plans that did not change are counted."""
    yield Line(f"{report.before} → {report.after}, planned for {report.target}", "title")
    same = sum(change.is_same for change in report.changes)
    for change in report.changes:
        if not change.is_same:
            yield ""
            yield from _change_lines(change, report)
    if same:
        yield ""
        yield Line(f"{counted(same, 'plan')} without a change", "note")


def _change_lines(change: PlanChange, report: PlanDifference) -> Iterator[str]:
    yield Line(change.title, "title")
    if change.before is None or change.after is None:
        yield f"  only in {report.after if change.before is None else report.before}"
        return
    rows = []
    for name, (old, new) in change.numbers.items():
        shown = (f"{old:,}", f"{new:,}") if name == "launches" else (human_bytes(old), human_bytes(new))
        by = f"{(new - old) / old:+.1%}" if old else ""
        rows.append([name, shown[0], "→", shown[1], by])
    rows += [[f"kernel {name}", str(old), "→", str(new), ""] for name, (old, new) in change.kernels.items()]
    yield from columns(rows, indent=2, align="<><>>")
    yield from (f"  guard gone: {guard}" for guard in change.guards_gone)
    yield from (f"  guard new: {guard}" for guard in change.guards_new)
