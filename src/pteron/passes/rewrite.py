"""Calls -> fewer calls: apply every rewrite that the flow of values allows."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace

from pteron.errors import GraphError, InputError, PteronError
from pteron.graph import Graph
from pteron.ops import Call
from pteron.ops.requirement import problem_of
from pteron.ops.rewrite import JOINS, REWRITES, Find, Flow, Replacement

REWRITES_VARIABLE = "PTERON_REWRITES"


def rewrite_calls(graph: Graph, calls: tuple[Call, ...], names: Collection[str]) -> tuple[Call, ...]:
    for name in names:
        is_done = False
        while not is_done:
            flow = Flow(graph, calls)
            try:
                calls, is_done = _pass(flow, REWRITES[name])
            except PteronError:
                raise
            except Exception as error:  # values that the rewrite does not expect
                where = f"{graph.name}: the rewrite {name} does not understand its nodes"
                raise GraphError(f"{where}: {problem_of(error)}") from error
            is_done = is_done or len(calls) == len(flow.calls)
            calls = _without_orphans(flow, calls) if calls != flow.calls else calls
    return calls


def _pass(flow: Flow, find: Find) -> tuple[tuple[Call, ...], bool]:
    """The calls after the replacements that a rewrite finds, and whether all could be made.

    Every replacement is proven on the current order of calls. Of overlapping replacements the first is made;
    the others wait for the next pass."""
    taken: set[Call] = set()
    replaced: dict[Call, tuple[Call, ...]] = {}  # the call before which new ones are inserted
    spans: list[tuple[int, int]] = []  # positions of the calls that were replaced, first and last
    is_all = True
    for found in find(flow):
        if not taken.isdisjoint(found.old) or (point := insertion_point(flow, found)) is None:
            continue
        positions = [flow.position[call] for call in found.old]
        first, last = min(positions), max(positions)
        if any(first <= end and start <= last for start, end in spans):
            is_all = False
            continue
        spans.append((first, last))
        taken.update(found.old)
        nodes = tuple(node for call in found.old for node in (call.node, *call.replaced))
        replaced[flow.calls[point]] = tuple(replace(call, replaced=nodes) for call in found.made)
    calls: list[Call] = []
    for call in flow.calls:
        if call in replaced:
            calls += replaced[call]
        if call not in taken:
            calls.append(call)
    return tuple(calls), is_all


def _without_orphans(before: Flow, calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls without those whose results no call reads any more."""
    needed = set(before.outputs)
    kept: list[Call] = []
    for call in reversed(calls):
        orphans = [value for value in call.outputs if value is not None and value.id in before.readers]
        is_orphan = len(orphans) == len(call.outputs) and not any(value.id in needed for value in orphans)
        if call.mutated or not is_orphan:
            kept.append(call)
            needed |= call.read_ids
    return tuple(reversed(kept))


def switched_on() -> tuple[str, ...]:
    """The rewrites and joins in use: all, or what PTERON_REWRITES says: "none", or "-name" for each that is
    off."""
    wanted = os.environ.get(REWRITES_VARIABLE, "").strip()
    if wanted == "none":
        return ()
    off = {word.strip().removeprefix("-") for word in wanted.split(",") if word.strip()}
    every = (*REWRITES, *JOINS)
    unknown = sorted(off.difference(every))
    if unknown:
        raise InputError(
            f"{REWRITES_VARIABLE}={wanted!r} names {', '.join(unknown)}; there are {', '.join(every)}"
        )
    return tuple(name for name in every if name not in off)


def insertion_point(flow: Flow, found: Replacement) -> int | None:
    """The position to insert the new call at; None if every position would change a result."""
    old = {call: flow.position[call] for call in found.old}
    made = {value.id for call in old for value in call.outputs if value is not None}
    if found.new.read_ids & made or _is_visible(flow, found) or not _is_near(flow, found):
        return None
    first, last = min(old.values()), max(old.values())
    between = [(position, flow.calls[position]) for position in range(first, last + 1)]
    others = [(position, call) for position, call in between if call not in old]
    bound = [
        (before, position)
        for call, before in old.items()
        for position, other in others
        if _matters(call, other, found.new.read_ids)
    ]
    for point in range(last, first - 1, -1):
        if all((before < position) == (point <= position) for before, position in bound):
            return point
    return None


def _is_visible(flow: Flow, found: Replacement) -> bool:
    """Whether another call reads a value that the new call does not write."""
    made = {value.id for call in found.made for value in call.outputs if value is not None}
    vanishing = {value.id for call in found.old for value in call.outputs if value is not None} - made
    return any(
        id in flow.outputs or any(reader not in found.old for reader in flow.readers.get(id, ()))
        for id in vanishing
    )


def _is_near(flow: Flow, found: Replacement) -> bool:
    """Whether the new call reads only what the old ones did, or what never changes: it may read behind a view
    that stays, but not what a call writes after the view."""
    near = frozenset[int]().union(*(call.read_ids for call in found.old))
    return all(tensor.id in near or flow.is_fixed(tensor) for tensor in found.new.reads)


def _matters(old: Call, other: Call, needed: frozenset[int]) -> bool:
    """Whether the call that replaces `old` must stay on the same side of another one. What only `old` read
    is not `needed` any more."""
    reads_result = old.written_ids & (other.written_ids | other.read_ids)
    return bool(reads_result or other.written_ids & old.read_ids & needed)
