"""Rows -> how many nodes were checked, and the names of those that were not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pteron.graph import Graph
from pteron.tools.compare.report import Row, Verdict


def counted_nodes(
    rows: Sequence[Row], graphs: Sequence[Graph], *, of_all: bool
) -> tuple[int, int, Mapping[str, str]]:
    """How many nodes had every output compared in every call, how many ran no kernel, and what is not
    known of which others; with `of_all` also of those that no row is of."""
    found: dict[tuple[int, int], set[Verdict]] = {}
    reasons: dict[tuple[int, int], str] = {}
    for row in rows:
        for index in row.nodes:
            place = (row.delegate or 0, index)
            found.setdefault(place, set()).add(row.verdict)
            if row.verdict is Verdict.UNCHECKED:
                reasons[place] = row.reason
    unchecked: dict[str, str] = {}
    why = "it did not run" if found else "only outputs are compared"
    checked = idle = 0
    for delegate, graph in enumerate(graphs):
        for node in graph.nodes:
            place = (delegate, node.index)
            verdicts = found.get(place)
            if verdicts == {Verdict.IDLE}:
                idle += 1
            elif place in reasons or (of_all and verdicts is None):
                where = f"delegate {delegate} node" if len(graphs) > 1 else "node"
                unchecked[f"{where} {node.index} {node.name}"] = reasons.get(place, why)
            elif verdicts is not None:
                checked += 1
    return checked, idle, unchecked
