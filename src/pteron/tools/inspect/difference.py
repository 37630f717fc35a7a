"""Two programs -> what differs: inputs, nodes with arguments and constants, figures of plans."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pteron.format.source import open_bytes
from pteron.ops import Target
from pteron.tools.inputs import LiveSize
from pteron.tools.inspect.figures import MEMORY, Figures, PlanFigures, examined_figures, read_figures
from pteron.tools.inspect.nodes import NodeChange, method_changes, node_changes
from pteron.tools.inspect.program import ExaminedMethod, ExaminedProgram, examine_program
from pteron.tools.local_adapter import LocalAdapter
from pteron.tools.text import Line, columns, counted, html_text, human_bytes

_NODES_SHOWN = 20  # before the rest is counted


def difference(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    planned_for: tuple[Target, str],
    data: Sequence[str | os.PathLike[str]] = (),
    method: str | None = None,
    *,
    sizes: Sequence[LiveSize] = (),
    integers: int = 0,
) -> ProgramDifference:
    """What differs between two programs, planned for a target with a name. `after` may also be a file of
    `write_figures`, which has no nodes."""
    target, name = planned_for

    def examine(path: str | os.PathLike[str]) -> ExaminedProgram:
        return examine_program(open_bytes(path), data, method, local=LocalAdapter(target, "the target"))

    def figures(examined: ExaminedProgram, path: str | os.PathLike[str]) -> Figures:
        return examined_figures(examined, os.fspath(path), sizes, integers, traffic=True)

    first = examine(before)
    found = figures(first, before)
    nodes: tuple[NodeChange, ...] = ()
    if Path(after).suffix == ".json":
        other = read_figures(Path(after))
    else:
        second = examine(after)
        other = figures(second, after)
        nodes = tuple(_node_changes(first, second))
    names = Path(before).name, Path(after).name
    return ProgramDifference(*names, name, nodes, changes_of(found, other))


def _node_changes(before: ExaminedProgram, after: ExaminedProgram) -> Iterator[NodeChange]:
    """Methods of the same name are compared; if each program has one, these two are."""
    if len(before.methods) == len(after.methods) == 1:
        pairs = [(before.methods[0], after.methods[0])]
    else:
        new = {each.record.name: each for each in after.methods}
        pairs = [(each, new[each.record.name]) for each in before.methods if each.record.name in new]
    for pair in pairs:
        yield from _changes_of_method(*pair)


def _changes_of_method(before: ExaminedMethod, after: ExaminedMethod) -> Iterator[NodeChange]:
    yield from method_changes(before.record, after.record)
    several = max(len(before.delegates), len(after.delegates)) > 1
    for index, (old, new) in enumerate(zip(before.delegates, after.delegates, strict=False)):
        where = after.record.name + (f", delegate {index}" if several else "")
        missing = {*old.report.constants_missing, *new.report.constants_missing}
        if old.graph and new.graph:
            yield from node_changes(old.graph, new.graph, where, missing)


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
class ProgramDifference:
    """Two programs: their nodes, and their plans for the same target."""

    before: str
    after: str
    target: str
    nodes: tuple[NodeChange, ...]
    changes: tuple[PlanChange, ...]

    @property
    def is_same(self) -> bool:
        return not self.nodes and all(change.is_same for change in self.changes)

    def _repr_html_(self) -> str:
        return html_text(difference_lines(self))


def difference_lines(report: ProgramDifference) -> Iterator[str]:
    """The nodes that differ, then the changes of each plan; plans that did not change are counted."""
    yield Line(f"{report.before} → {report.after}, planned for {report.target}", "title")
    for where, nodes in groupby(report.nodes[:_NODES_SHOWN], lambda change: change.where):
        yield from ("", Line(where, "title"))
        for node in nodes:
            yield from _node_lines(node, report)
    if len(report.nodes) > _NODES_SHOWN:
        more = counted(len(report.nodes) - _NODES_SHOWN, "more node")
        yield Line(f"  … and {more} (--json lists all)", "note")
    same = sum(change.is_same for change in report.changes)
    for change in report.changes:
        if not change.is_same:
            yield ""
            yield from _change_lines(change, report)
    if same:
        yield ""
        yield Line(f"{counted(same, 'plan')} without a change", "note")


def _node_lines(change: NodeChange, report: ProgramDifference) -> Iterator[str]:
    if change.before is None or change.after is None:
        yield f"  {change.before or change.after}, only in {report.before if change.before else report.after}"
        return
    yield f"  {change.before}" + (f" → {change.after}" if change.after != change.before else "")
    yield from (f"    {argument}" for argument in change.arguments)


def _change_lines(change: PlanChange, report: ProgramDifference) -> Iterator[str]:
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
