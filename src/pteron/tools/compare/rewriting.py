"""What rewrites and joins make of nodes, beside the nodes themselves on the same inputs, each by its name.

They are switched on one after the other, in the order in which they apply. Whatever runs otherwise than
before was made by the one that came last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pteron.ops import Target
from pteron.ops.join import JOINS
from pteron.passes import prepare
from pteron.passes.rewrite import switched_on
from pteron.runtime import Program
from pteron.tools.compare.judging import Judge
from pteron.tools.compare.running import Calls, stepped
from pteron.tools.compare.stepping import Seen


def rewrites_judged(
    judge: Judge,
    program: Program,
    name: str,
    weights: Mapping[str, memoryview],
    target: Target,
    calls: Calls,
) -> None:
    """Let a judge see every step that a rewrite or join has changed."""
    names = switched_on()
    shape = _shape(program, name, ())
    before: set[object] = set()
    for count in range(len(names) + 1):
        on = names[:count]
        last = on[-1] if on else ""
        changed = _shape(program, name, on)
        if last and last not in JOINS and changed == shape:
            continue  # it found nothing in this program
        shape = changed
        changes = _Changes(judge, before, last)
        with stepped(program, name, weights, program.device, target, on, changes) as (method, specs):
            calls.make(method, specs, changes)
        before = changes.signatures


def _shape(program: Program, name: str, rewrites: tuple[str, ...]) -> tuple[object, ...]:
    """What calls a method's graphs become."""
    return tuple(
        tuple((call.operator.name, call.nodes) for call in prepare(graph, rewrites).calls)
        for graph in program.graphs(name)
    )


@dataclass(slots=True)
class _Changes:
    """Passes on the steps that were not there before, and remembers all."""

    judge: Judge
    before: set[object]
    rewrite: str
    call: str = ""
    signatures: set[object] = field(default_factory=set)

    def watch(self, delegate: int, seen: Seen, index: int, count: int) -> None:
        signature = (self.call, delegate, seen.step.signature)
        self.signatures.add(signature)
        if self.rewrite and signature not in self.before and not seen.step.is_on_host:
            self.judge.call, self.judge.rewrite = self.call, self.rewrite
            self.judge.watch(delegate, seen, index, count)
