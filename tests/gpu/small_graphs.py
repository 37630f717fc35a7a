"""Small graphs put together node by node, as files hold them, and what they give with some rewrites."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.gpu import Device
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, ValueList
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime.delegate import Delegate
from pteron.runtime.session import Counters, Session, Wanted
from pteron.runtime.tensors import HostResult

Array = npt.NDArray[Any]


@dataclass
class Drawing:
    """A graph in the making; tensors have their largest shapes."""

    inputs: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    count: int = 0

    def input(self, *shape: int, dtype: str = "f32") -> Tensor:
        """An input of the graph."""
        self.inputs.append(Tensor(self._id(), DType(dtype), shape))
        return self.inputs[-1]

    def constant(self, values: Array) -> Tensor:
        """A constant of the graph."""
        dtype = DType.of(values.dtype)
        assert dtype is not None
        key = f"constant {self.count}"
        data = memoryview(np.ascontiguousarray(values).tobytes())
        return Tensor(self._id(), dtype, values.shape, Constant(key, dtype, values.shape, data))

    def size(self, tensor: Tensor, dim: int) -> SymInt:
        """The live size of a dim."""
        symbol = SymInt(self._id())
        self.nodes.append(Node(len(self.nodes), "sym_size.int", (tensor, dim, symbol)))
        return symbol

    def node(self, name: str, *arguments: Any, shape: Sequence[int], dtype: str = "f32") -> Tensor:
        """What a node makes. Lists with tensors or live sizes in them become values."""
        out = Tensor(self._id(), DType(dtype), tuple(shape))
        self.nodes.append(Node(len(self.nodes), name, (*map(self._argument, arguments), out)))
        return out

    def several(
        self, name: str, *arguments: Any, shapes: Sequence[Sequence[int]], dtypes: Sequence[str] | None = None
    ) -> list[Tensor]:
        """What a node with several outputs makes."""
        types = map(DType, dtypes or ["f32"] * len(shapes))
        outputs = [
            Tensor(self._id(), dtype, tuple(shape)) for dtype, shape in zip(types, shapes, strict=True)
        ]
        made = ValueList(self._id(), tuple(outputs))
        self.nodes.append(Node(len(self.nodes), name, (*map(self._argument, arguments), made)))
        return outputs

    def graph(self, *outputs: Tensor) -> Graph:
        return Graph("small graph", tuple(self.nodes), tuple(self.inputs), outputs)

    def _argument(self, argument: Any) -> Any:
        if not isinstance(argument, list):
            return argument
        is_plain = all(isinstance(item, (int, float)) for item in argument)
        return tuple(argument) if is_plain else ValueList(self._id(), tuple(argument))

    def _id(self) -> int:
        self.count += 1
        return self.count


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
