"""Measured cases of launches that are joined: graphs of several operators, with all joins and with none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from join_cases import Calls, feed_forward, normed_layers, sum_and_norm
from measured_case import Case
from small_graphs import run_graph

from pteron import Device
from pteron.graph import Graph
from pteron.ops import Target
from pteron.ops.rewrite import JOINS, REWRITES


@dataclass(frozen=True)
class JoinedCase(Case):
    """A graph at work."""

    graph: Graph
    calls: Calls

    def check(self, target: Target) -> None:
        with_them, without = (
            run_graph(self.graph, names, self.calls, Device.open(), target)
            for names in ([*REWRITES, *JOINS], list(REWRITES))
        )
        for call, wanted in zip(with_them, without, strict=True):
            for a, b in zip(call, wanted, strict=True):
                np.testing.assert_allclose(a, b, atol=4e-6)


def joined(name: str, kernels: str, drawn: tuple[Graph, Calls]) -> JoinedCase:
    return JoinedCase(name, (), kernels, ("hardware",), {}, *drawn)


JOINED_CASES = [
    joined("a norm", "q4_merge_rows", sum_and_norm(288, 1024)),
    joined("a norm of few rows", "matvec", normed_layers(1028)),
    joined("int8", "q4_merge_rows", feed_forward(288, 1024)),
]
