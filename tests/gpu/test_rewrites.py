"""Every rewrite on a graph that has its pattern, with and without it: the same results, in fewer launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.dtypes import DType
from pteron.gpu import Device
from pteron.ops import Target
from pteron.ops.rewrite import REWRITES
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime.delegate import Delegate
from pteron.runtime.session import Counters, Session, Wanted
from pteron.runtime.tensors import HostResult

# A program that has the pattern of each rewrite.
PROGRAMS = {"silu_mul": "tiny_llama_q4"}


def run(names: list[str], path: Path, device: Device, target: Target) -> tuple[list[Any], int]:
    """Logits of a prefill and two decode steps with these rewrites, and the launches of a step."""
    graph = pteron.load(path).graphs("forward")[0]
    compiled = Compiled(prepare(graph, names), target)
    delegate = Delegate(Session(compiled.executable, device, Counters(), compiled))
    found = []
    for tokens, position in (([5, 9, 200, 31, 7], 0), ([11], 5), ([400], 6)):
        (logits,) = delegate.run(
            (np.array([tokens]), np.array([position])), [Wanted(DType.F32, on_gpu=False)]
        )
        assert isinstance(logits, HostResult)
        found.append(logits.numpy())
    return found, len(
        compiled.plan(((1, 1), (1,)), {s.symbol: 5 for s in compiled.executable.sources}).launches
    )


def test_every_rewrite_has_a_program() -> None:
    assert PROGRAMS.keys() == REWRITES.keys()


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_and_without(name: str, models: Path, device: Device, target: Target) -> None:
    path = models / f"{PROGRAMS[name]}.pte"
    with_it, fewer = run(list(REWRITES), path, device, target)
    without, more = run([other for other in REWRITES if other != name], path, device, target)
    assert fewer < more
    for a, b in zip(with_it, without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
