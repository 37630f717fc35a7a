"""Records of a delegate blob -> Graph: ids become values, constants are checked against their shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

from pteron.errors import GraphError
from pteron.format.records import DelegateGraph, VkSymInt, VkTensor, VkValueList
from pteron.graph.values import (
    Constant,
    Graph,
    Item,
    Node,
    SymInt,
    Tensor,
    Value,
    ValueList,
    describe,
    numel,
    tensors,
)

ValueOf: TypeAlias = Callable[[int], Value]
# No buffer that a kernel can read is larger than 4 GiB, and every element takes a 32-bit word.
ELEMENTS_MAX = 1 << 30


def build(record: DelegateGraph) -> Graph:
    """The graph of a delegate blob, or a GraphError that names the node that cannot be right."""
    values: dict[int, Value] = {}

    def value(id: int) -> Value:
        if id not in values:
            values[id] = _value(record, id, value)
        return values[id]

    nodes = tuple(
        Node(index, node.name, tuple(map(value, node.args))) for index, node in enumerate(record.nodes)
    )
    for node in nodes:
        _check_constants(record, node)
    return Graph(
        name=record.name,
        nodes=nodes,
        inputs=_ports(record, "input", record.input_ids, value),
        outputs=_ports(record, "output", record.output_ids, value),
    )


def _value(record: DelegateGraph, id: int, value_of: ValueOf) -> Value:
    match record.values[id]:
        case VkTensor() as tensor:
            value = Tensor(id, tensor.dtype, tensor.dims, _constant(record, tensor), tensor.memory_id)
            if numel(tensor.dims) > ELEMENTS_MAX:
                raise GraphError(f"{record.name}: {value} has more elements than a GPU can address")
            return value
        case VkSymInt(initial):
            return SymInt(id, initial)
        case VkValueList(items):
            return ValueList(id, tuple(_item(record, id, item, value_of) for item in items))
        case scalar:
            return scalar


def _item(record: DelegateGraph, list_id: int, id: int, value_of: ValueOf) -> Item:
    """A member of a list; a list in it could contain itself, or double at every level."""
    if isinstance(record.values[id], (VkValueList, tuple)):
        raise GraphError(f"{record.name}: value list %{list_id} contains %{id}, a list")
    return cast(Item, value_of(id))


def _constant(record: DelegateGraph, tensor: VkTensor) -> Constant | None:
    if tensor.constant_id is None:
        return None
    constant = record.constants[tensor.constant_id]
    key = constant.key if constant.key is not None else f"{record.name}#{tensor.constant_id}"
    data = constant.data if constant.data is not None else memoryview(b"")
    return Constant(key, tensor.dtype, tensor.dims, data)


def _check_constants(record: DelegateGraph, node: Node) -> None:
    """Constants are checked where they are used, so that an error can name the node."""
    for tensor in (tensor for arg in node.args for tensor in tensors(arg)):
        if tensor.constant is None:
            continue
        expected = numel(tensor.shape_max) * tensor.dtype.itemsize
        found = len(tensor.constant.data)
        if found == expected:
            continue
        if found == 0:
            raise GraphError(
                f"{record.name}, {node}: constant {tensor} has no data: key {tensor.constant.key!r} "
                "is neither in the program nor in the weight files given (load(..., data=[...]))"
            )
        raise GraphError(
            f"{record.name}, {node}: constant {tensor} needs {expected} bytes, its data has {found}"
        )


def _ports(
    record: DelegateGraph, side: str, ids: tuple[int, ...], value_of: ValueOf
) -> tuple[Tensor | SymInt, ...]:
    """The graph's inputs or outputs. One value may be several outputs, but not several inputs."""
    ports: list[Tensor | SymInt] = []
    for position, id in enumerate(ids):
        value = value_of(id)
        if side == "input" and value in ports:
            before = ports.index(value)
            raise GraphError(f"{record.name}: inputs {before} and {position} are both {describe(value)}")
        if not isinstance(value, (Tensor, SymInt)):
            raise GraphError(f"{record.name}: {side} {position} is %{id}, neither a tensor nor a SymInt")
        ports.append(value)
    return tuple(ports)
