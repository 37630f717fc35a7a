"""The first departure -> which of its nodes it comes from, where several ran as one."""

from __future__ import annotations

from functools import partial

from pteron.errors import PteronError
from pteron.gpu import Device
from pteron.ops import Target
from pteron.tools.compare.extract import extract
from pteron.tools.compare.judging import Departure, Expect, Judge
from pteron.tools.compare.tolerances import Tolerances


def culprit_of(
    departure: Departure, expect: Expect | None, device: Device, target: Target, tolerances: Tolerances
) -> str:
    """In words. With a reference of single nodes they are run again one by one, on the inputs of the
    departure."""
    nodes = departure.seen.step.nodes
    if len(nodes) == 1:
        return f"node {nodes[0].index} {nodes[0].name}"
    listed = f"nodes {departure.row.where}, which run as {departure.row.ran}"
    if departure.row.rewrite:
        return f"{listed} by {departure.row.rewrite}"
    if expect is None:
        return listed
    judge = Judge(expect, tolerances)
    try:
        extract(departure.seen).step(device, target, (), partial(judge.watch, departure.row.delegate or 0))
    except PteronError as error:
        return f"{listed}; they could not be run one by one: {error}"
    if judge.departure is None:
        return f"{listed}: each of these nodes alone is right, so it is what rewrites made of them"
    (node, *_) = judge.departure.seen.step.nodes
    return f"node {node.index} {node.name}, which departs alone, too, as part of {listed}"
