"""A step that ran on a GPU -> a graph of only its nodes, with its inputs, to run it again elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeAlias

from pteron.dtypes import DType, Storage
from pteron.gpu import Device
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.host.tensors import HostResult, widen_bf16
from pteron.ops import OPERATORS, Kind, Target
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Counters, Session
from pteron.tools.compare.steps import Array, NoReferenceError, Observe, SteppedSession, StepRecord

Given: TypeAlias = Array | int
# The type in which the host reads a buffer without loss.
_PLAIN = {Storage.F32: DType.F32, Storage.F16: DType.F16, Storage.I32: DType.I32, Storage.U32: DType.I32}


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A small graph and its inputs, in order."""

    graph: Graph
    inputs: tuple[Given, ...]

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(value for value in self.graph.outputs if isinstance(value, Tensor))

    def run(self, device: Device, target: Target, rewrites: Collection[str]) -> Mapping[int, Array]:
        """The outputs by id, computed on a device with these rewrites and joins."""
        compiled = Compiled(prepare(self.graph, rewrites), target)
        return self._run(Session(compiled.executable, device, Counters(), compiled), target)

    def step(self, device: Device, target: Target, rewrites: Collection[str], observe: Observe) -> None:
        compiled = Compiled(prepare(self.graph, rewrites), target)
        self._run(SteppedSession(compiled, device, observe), target)

    def _run(self, session: Session, target: Target) -> Mapping[int, Array]:
        wanted = [Wanted(_PLAIN[target.storage(tensor.dtype)], on_gpu=False) for tensor in self.outputs]
        with closing(session), closing(session.states()) as states:
            results = zip(self.outputs, session.run(self.inputs, wanted, states), strict=True)
            return {tensor.id: each.numpy() for tensor, each in results if isinstance(each, HostResult)}


def rerun_step(
    record: StepRecord, device: Device, target: Target, rewrites: Collection[str]
) -> Mapping[int, Array]:
    """The outputs of a step computed again on a device; nothing for live integers, which the host
    computes."""
    return {} if record.step.is_on_host else extract_subgraph(record).run(device, target, rewrites)


def extract_subgraph(record: StepRecord) -> Subgraph:
    """The nodes of a step, including those that its rewrites removed. Live integers and values from before
    the step become inputs; constants stay constants, since operators pack weights."""
    builder = _Builder(record)
    for node in record.step.nodes:
        builder.add(node)
    nodes = tuple(builder.nodes[index] for index in sorted(builder.nodes))
    graph = Graph(
        name=f"{record.graph.name}, {', '.join(f'node {node.index}' for node in nodes)}",
        nodes=nodes,
        inputs=tuple(builder.inputs),
        outputs=tuple(builder.tensors.get(tensor.id, tensor) for tensor in record.shown),
    )
    return Subgraph(graph, tuple(builder.given))


class _Builder:
    def __init__(self, record: StepRecord) -> None:
        self.record = record
        self.nodes: dict[int, Node] = {}
        self.tensors: dict[int, Tensor] = {}
        self.inputs: list[Tensor | SymInt] = []
        self.given: list[Given] = []
        self._symbols: set[int] = set()

    def add(self, node: Node) -> None:
        if node.index in self.nodes or OPERATORS[node.name].kind in (Kind.SCALAR, Kind.SOURCE):
            return
        self.nodes[node.index] = node  # placeholder: a node may read its own output
        *inputs, output = node.args
        read = tuple(self._value(value) for value in inputs)
        self.nodes[node.index] = Node(node.index, node.name, (*read, self._written(output)))

    def _written(self, output: Value) -> Value:
        if isinstance(output, ValueList):
            return ValueList(output.id, tuple(self._written(item) for item in output.items))  # type: ignore[misc]
        return self.tensors.setdefault(output.id, output) if isinstance(output, Tensor) else output

    def _value(self, value: Value) -> Value:
        if isinstance(value, ValueList):
            return ValueList(value.id, tuple(self._value(item) for item in value.items))  # type: ignore[misc]
        if isinstance(value, SymInt) and value.id not in self._symbols:
            self._symbols.add(value.id)
            self.inputs.append(value)
            self.given.append(self.record.integers[value.id])
        return self._tensor(value) if isinstance(value, Tensor) else value

    def _tensor(self, tensor: Tensor) -> Tensor:
        if tensor.id in self.tensors:
            return self.tensors[tensor.id]
        array = self.record.before.get(tensor.id)
        constant = self.record.constants.get(tensor.id, tensor.constant)
        if array is not None:
            self.tensors[tensor.id] = given = replace(tensor, constant=None, memory=None)
            self.inputs.append(given)
            self.given.append(array)
        elif constant is not None:
            self.tensors[tensor.id] = replace(tensor, constant=_viewed_as(constant, tensor), memory=None)
        else:
            raise NoReferenceError(f"the value of {tensor} is not known")
        return self.tensors[tensor.id]


def _viewed_as(constant: Constant, tensor: Tensor) -> Constant:
    """A constant in the shape and type of a tensor that views it."""
    data = constant.data
    if constant.dtype is not tensor.dtype:
        elements = widen_bf16(constant.numpy(), constant.dtype).astype(tensor.dtype.numpy)
        data = memoryview(elements.tobytes())
    return Constant(constant.key, tensor.dtype, tensor.shape_max, data)
