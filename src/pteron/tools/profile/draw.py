"""The launches that draw the next token, which follow those of a decode step in the same pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.gpu import Replay
from pteron.gpu.tensors import View
from pteron.graph import SymInt, Tensor
from pteron.llm.sampling import Sampler
from pteron.plan import Launch
from pteron.runtime.delegate import Delegate
from pteron.runtime.staging import Input
from pteron.tools.profile.work import LaunchWork, planned_again, work_of


@dataclass(frozen=True, slots=True)
class Draw:
    """What a sampler launches, the work of each, and all of it ready to be submitted."""

    launches: tuple[Launch, ...]
    works: tuple[LaunchWork, ...]
    replay: Replay


def draw_behind(delegate: Delegate, inputs: Sequence[Input], sampler: Sampler) -> Draw:
    """What draws a token from the logits that a call of a graph leaves, where it leaves them."""
    session, states = delegate.session, delegate.states
    with session.device.lock:
        recording, numbers = session.ready(inputs)
        logits = session.outputs(recording, numbers, states)[0]
        assert isinstance(logits, View)
        row, target = logits.last_row(), session.executable.target
        graph = sampler.graph(row)
        shapes = tuple(value.shape_max if isinstance(value, Tensor) else None for value in graph.inputs)
        values = {value.id: 0 for value in graph.inputs if isinstance(value, SymInt)}
        plan = planned_again(graph, target, shapes, values)
        works = work_of(graph, target, shapes, values)
        return Draw(plan.launches, tuple(works), sampler.replay(row, 0, sampler.token.buffer))
