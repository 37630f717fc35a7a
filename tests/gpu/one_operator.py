"""A graph of one operator, run in poisoned memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from arguments import Argument, Array, Leaf, Symbol, TensorArgument, leaves, substitute

from pteron.dtypes import DType
from pteron.gpu import Device
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, ValueList
from pteron.host.tensors import HostResult
from pteron.ops import OPERATORS, Target
from pteron.ops.operand import Slot, State
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Counters, Session

POISON = b"\xff"  # a NaN in every float type, -1 in every integer


@cache
def shared_device() -> Device:
    """Without listing the adapters again, which takes as long as a small operator."""
    return Device.open()


class OneOperator:
    """An operator at work on its own; `run` takes what its arguments' leaves are at one call."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[Argument],
        most: Mapping[Leaf, Array | int],
        outputs: Sequence[tuple[tuple[int, ...], DType]],
        target: Target | None = None,
    ) -> None:
        self._leaves = list(dict.fromkeys(leaves(arguments)))
        self._values = values = {leaf: _value(id, leaf, most[leaf]) for id, leaf in enumerate(self._leaves)}
        self._inputs = [leaf for leaf in self._leaves if not _is_constant(leaf)]
        self.outputs = [
            Tensor(len(values) + position, dtype, shape) for position, (shape, dtype) in enumerate(outputs)
        ]
        ids = iter(range(1000, 2000))
        node_arguments = [
            substitute(argument, values, lambda items: _list(next(ids), items)) for argument in arguments
        ]
        declared = OPERATORS[name].signature.outputs
        several = len(declared) > 1 or declared[0].kind == "tensors"
        output = ValueList(next(ids), tuple(self.outputs)) if several else self.outputs[0]
        graph = Graph(
            name="one operator",
            nodes=(Node(0, name, (*node_arguments, output)),),
            inputs=tuple(values[leaf] for leaf in self._inputs),
            outputs=tuple(self.outputs),
            is_internal=True,
        )
        self.device = shared_device()
        self.counters = Counters()
        self.compiled = Compiled(prepare(graph), target or self.device.target)
        self.session = Session(self.compiled.executable, self.device, self.counters, self.compiled)
        self.states = self.session.states()
        self._slots_given, self._slots_written = self._activation_slots()

    def run(self, values: Mapping[Leaf, Array | int]) -> list[Array]:
        """The outputs of one call; booleans come as integers, so that poison shows."""
        for slot in self._slots_given | self._slots_written:
            buffer = self.session._arena[slot]
            self.device.write(buffer, POISON * buffer.size)
        wanted = [
            Wanted(DType.I32 if tensor.dtype is DType.BOOL else tensor.dtype, on_gpu=False)
            for tensor in self.outputs
        ]
        results = self.session.run([values[leaf] for leaf in self._inputs], wanted, self.states)
        arrays = [result.numpy() for result in results if isinstance(result, HostResult)]
        for tensor, array in zip(self.outputs, arrays, strict=True):
            self._check_rest_untouched(tensor, array.size)
        return arrays

    def state(self, leaf: TensorArgument) -> Array:
        """What a constant that the operator updates holds now."""
        tensor = self._values[leaf]
        assert isinstance(tensor, Tensor)
        storage = self.compiled.target.storage(tensor.dtype)
        data = self.device.read(self.states[State(tensor.id)], math.prod(tensor.shape_max) * storage.itemsize)
        return np.frombuffer(data, storage.numpy).reshape(tensor.shape_max)

    def close(self) -> None:
        self.session.close()

    def _activation_slots(self) -> tuple[set[Slot], set[Slot]]:
        """The slots of the inputs, and those that every call writes (not once, at load, from constants)."""
        prepared = self.compiled.prepared
        buffers = self.compiled.placement.buffers
        kept = {buffers[tensor.id] for call in prepared.once for tensor in call.writes}
        given = {buffers[tensor.id] for tensor in prepared.graph.inputs if isinstance(tensor, Tensor)}
        written = {buffers[tensor.id] for call in prepared.each for tensor in call.writes} - kept - given
        return {s for s in given if isinstance(s, Slot)}, {s for s in written if isinstance(s, Slot)}

    def _check_rest_untouched(self, tensor: Tensor, count: int) -> None:
        """Nothing is written past the live elements of an output."""
        slot = self.compiled.placement.buffers[tensor.id]
        if slot not in self._slots_written:
            return
        buffer = self.session._arena[slot]
        storage = self.compiled.target.storage(tensor.dtype)
        rest = self.device.read(buffer, buffer.size)[count * storage.itemsize :]
        assert rest == POISON * len(rest), f"wrote past the {count} live elements of {tensor}"


def _is_constant(leaf: Leaf) -> bool:
    return isinstance(leaf, TensorArgument) and leaf.is_constant


def _value(id: int, leaf: Leaf, most: Array | int) -> Any:
    if isinstance(leaf, Symbol):
        return SymInt(id)
    assert isinstance(most, np.ndarray)
    dtype = DType.of(most.dtype)
    assert dtype is not None
    if not leaf.is_constant:
        return Tensor(id, dtype, most.shape)
    data = memoryview(most.tobytes())
    return Tensor(id, dtype, most.shape, Constant(f"constant {id}", dtype, most.shape, data))


def _list(id: int, items: list[Any]) -> Any:
    """Plain numbers stay a tuple, as files store them; a list with tensors or live integers is a value."""
    is_plain = not any(item is None or isinstance(item, (Tensor, SymInt)) for item in items)
    return tuple(items) if is_plain else ValueList(id, tuple(items))


def largest(arrays: Sequence[Array]) -> tuple[int, ...]:
    """The shape that holds every array."""
    return tuple(map(max, zip(*(array.shape for array in arrays), strict=True))) if arrays[0].ndim else ()
