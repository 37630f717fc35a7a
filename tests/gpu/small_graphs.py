"""Small graphs put together node by node, as files hold them, and what they give with some rewrites."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from golden import read_cases
from sketch import Sketch

import pteron
from pteron.dtypes import DType
from pteron.gpu import Device
from pteron.graph import Graph, Node, SymInt, Tensor
from pteron.host.tensors import HostResult
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Counters, Session

Array = npt.NDArray[Any]


class Drawing(Sketch):
    """A graph in the making; tensors have their largest shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[Tensor] = []

    def input(self, *shape: int) -> Tensor:
        """An input of the graph."""
        self.inputs.append(self.tensor(*shape))
        return self.inputs[-1]

    def given(self, values: Array) -> Tensor:
        """A constant of these values."""
        dtype = DType.of(values.dtype)
        assert dtype is not None
        blank = self.constant(*values.shape, dtype=dtype)
        assert blank.constant is not None
        return replace(blank, constant=replace(blank.constant, data=memoryview(values.tobytes())))

    def size(self, tensor: Tensor, dim: int) -> SymInt:
        """The live size of a dim."""
        symbol = self.symbol()
        self.node("sym_size.int", tensor, dim, symbol)
        return symbol

    def made(self, name: str, *arguments: Any, shape: Sequence[int]) -> Tensor:
        """What a node makes. Lists with live sizes in them become values."""
        out = self.tensor(*shape)
        self.node(name, *map(self._argument, arguments), out)
        return out

    def several(
        self, name: str, *arguments: Any, shapes: Sequence[Sequence[int]], dtypes: Sequence[str] | None = None
    ) -> list[Tensor]:
        """What a node with several outputs makes."""
        types = map(DType, dtypes or ["f32"] * len(shapes))
        outputs = [self.tensor(*shape, dtype=dtype) for dtype, shape in zip(types, shapes, strict=True)]
        self.node(name, *map(self._argument, arguments), self.list(*outputs))
        return outputs

    def ending(self, *outputs: Tensor) -> Graph:
        """The graph with these outputs."""
        return self.graph(self.inputs, outputs)

    def _argument(self, argument: Any) -> Any:
        if not isinstance(argument, list):
            return argument
        return tuple(argument) if all(isinstance(item, int) for item in argument) else self.list(*argument)


def operators(graph: Graph, rewrites: Collection[str] | None = None) -> list[str]:
    """The names of what is called after some rewrites, by default those that are switched on."""
    return [call.operator.name for call in prepare(graph, rewrites).calls]


def run_graph(
    graph: Graph, rewrites: Collection[str], calls: Sequence[Sequence[Array]], device: Device, target: Target
) -> list[list[Array]]:
    """The outputs of each call."""
    compiled = Compiled(prepare(graph, rewrites), target)
    session = Session(compiled.executable, device, Counters(), compiled)
    delegate = Delegate(session)
    wanted = [Wanted(DType.F32, on_gpu=False) for _ in graph.outputs]
    found = []
    for inputs in calls:
        results = delegate.run(inputs, wanted)
        found.append([result.numpy() for result in results if isinstance(result, HostResult)])
    session.close()
    return found


def calls(path: Path) -> list[tuple[Any, ...]]:
    """A prefill and two decode steps of a language model; the recorded calls of another program."""
    if path.parent.name == "models":
        steps = ([5, 9, 200, 31, 7], 0), ([11], 5), ([400], 6)
        return [(np.array([tokens]), np.array([position])) for tokens, position in steps]
    return [tuple(case.inputs) for case in read_cases(path.with_suffix(".npz"))]


def run(names: list[str], path: Path, device: Device, target: Target) -> tuple[list[Any], int]:
    """What the first delegate gives at each call with these rewrites, and the launches of the last."""
    graph = pteron.load(path).graphs("forward")[0]
    counters = Counters()
    compiled = Compiled(prepare(graph, names), target)
    delegate = Delegate(Session(compiled.executable, device, counters, compiled))
    found = []
    for inputs in calls(path):
        before = counters.dispatches
        (result,) = delegate.run(inputs, [Wanted(DType.F32, on_gpu=False)])
        assert isinstance(result, HostResult)
        found.append(result.numpy())
    return found, counters.dispatches - before


P, Q, SUM, HALF, END = (SymInt(id) for id in range(5))


def open_session(*calls: tuple[Any, ...], inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Delegate:
    nodes = tuple(Node(index, name, tuple(arguments)) for index, (name, *arguments) in enumerate(calls))
    return Delegate(Session.of(Graph("scalars", nodes, inputs, outputs), Device.open()))
