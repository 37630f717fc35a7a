"""Graph -> calls ready for planning: those of every run, and those that run once at load."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pteron.graph import Graph, Tensor
from pteron.ops import Call, Kind
from pteron.ops.call import mutated_ids
from pteron.ops.rewrite import JOINS, Join
from pteron.passes.resolve import check_constants, check_order, resolve, with_states
from pteron.passes.rewrite import rewrite_calls, switched_on
from pteron.passes.sources import Source, sources


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The planner's input, for any device; `once` runs at load, `each` at every call."""

    graph: Graph
    once: tuple[Call, ...]
    each: tuple[Call, ...]
    sources: tuple[Source, ...]
    joins: tuple[Join, ...]  # that the planner may apply

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls. Those that depend only on constants come first."""
        return self.once + self.each


def prepare(graph: Graph, rewrites: Collection[str] | None = None) -> Prepared:
    """Resolve, check, rewrite and fold a graph. `rewrites` names rewrites and joins, by default those that
    PTERON_REWRITES leaves on."""
    names = switched_on() if rewrites is None else rewrites
    calls = resolve(graph)
    live = sources(graph, calls)
    check_order(graph, calls)
    check_constants(graph)
    calls = with_states(graph, calls)
    calls = rewrite_calls(graph, calls, [name for name in names if name not in JOINS])
    calls = _without_host_calls(graph, calls, live)
    once = constant_calls(calls)
    folded = set(once)
    each = tuple(call for call in calls if call not in folded)
    joins = tuple(find for name, find in JOINS.items() if name in names)
    return Prepared(graph, once, each, live, joins)


def _without_host_calls(
    graph: Graph, calls: tuple[Call, ...], sources: Collection[Source]
) -> tuple[Call, ...]:
    """The calls without those whose results only the host needs, for live integers, which it computes."""
    programs = (source.program for source in sources if source.program)
    hosted = {id for program in programs for step in program.steps for id in step.results}
    needed = {value.id for value in graph.outputs} | mutated_ids(calls) if hosted else set()
    kept = []
    for call in reversed(calls):
        is_source = call.operator.kind is Kind.SOURCE
        if not call.written_ids <= (hosted if is_source else hosted - needed):
            kept.append(call)
            needed |= call.read_ids
    return tuple(reversed(kept)) if hosted else calls


def constant_calls(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls that depend only on constants: their results are the same at every run.

    Scalars of a model (`x * 2.5 + 1`) arrive as constants that are converted and copied by nodes.
    """
    mutated = mutated_ids(calls)
    fixed: set[int] = set()
    found = []
    for call in calls:
        known = all(
            (tensor.constant is not None or tensor.id in fixed) and tensor.id not in mutated
            for tensor in call.reads
        )
        outputs = [value for value in call.outputs if isinstance(value, Tensor)]
        stays = bool(outputs) and not any(tensor.id in mutated for tensor in call.writes)
        if known and stays and not call.symbols:
            fixed.update(tensor.id for tensor in outputs)
            found.append(call)
    return tuple(found)
