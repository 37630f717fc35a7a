"""Small graphs put together node by node, as files hold them, and what they give with some rewrites."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt
from sketch import Sketch

from pteron.dtypes import DType
from pteron.gpu import Device
from pteron.gpu.tensors import HostResult
from pteron.graph import Graph, SymInt, Tensor
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
