"""Nodes fused by rewrites and joins against the original nodes on the same inputs, by rewrite.

Rewrites are switched on one after the other, in the order in which they apply: a step that changed was made
by the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pteron.ops import Target
from pteron.ops.join import JOINS
from pteron.passes import prepare
from pteron.passes.rewrite import switched_on
from pteron.runtime import Program
from pteron.tools.compare.calls import Calls, stepped
from pteron.tools.compare.checker import StepChecker
from pteron.tools.compare.session import StepRecord


def check_rewrites(
    checker: StepChecker,
    program: Program,
    name: str,
    weights: Mapping[str, memoryview],
    target: Target,
    calls: Calls,
) -> None:
    """Check every step that a rewrite or join has changed."""
    names = switched_on()
    structure = _structure(program, name, ())
    before: set[object] = set()
    for count in range(len(names) + 1):
        on = names[:count]
        last = on[-1] if on else ""
        changed = _structure(program, name, on)
        if last and last not in JOINS and changed == structure:
            continue  # it does not apply to this program
        structure = changed
        changes = _ChangedSteps(checker, before, last)
        with stepped(program, name, weights, program.device, target, on, changes) as (method, specs):
            calls.make(method, specs, changes)
        before = changes.signatures


def _structure(program: Program, name: str, rewrites: tuple[str, ...]) -> tuple[object, ...]:
    """The calls of a method's graphs after these rewrites."""
    return tuple(
        tuple((call.operator.name, call.nodes) for call in prepare(graph, rewrites).calls)
        for graph in program.graphs(name)
    )


@dataclass(slots=True)
class _ChangedSteps:
    """Passes on the steps that did not exist before, and remembers all."""

    checker: StepChecker
    before: set[object]
    rewrite: str
    call: str = ""
    signatures: set[object] = field(default_factory=set)

    def observe(self, delegate: int, record: StepRecord, index: int, count: int) -> None:
        signature = (self.call, delegate, record.step.signature)
        self.signatures.add(signature)
        if self.rewrite and signature not in self.before and not record.step.is_on_host:
            self.checker.call, self.checker.rewrite = self.call, self.rewrite
            self.checker.observe(delegate, record, index, count)
