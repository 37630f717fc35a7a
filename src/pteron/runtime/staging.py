"""Stages the inputs of a call: reads their shapes and live integers, checks their elements, uploads them.

All checks are done before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import gt
from typing import TypeAlias

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.errors import DtypeError, InputError, ShapeError
from pteron.gpu import Buffer, Copy, Device
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.host.tensors import GpuTensor, View, extremes, to_storage
from pteron.host.values import HostTensor
from pteron.ops.operand import HostArray
from pteron.passes import Source
from pteron.plan import Executable, IndexRange, PlanBuffer, Shapes, SymbolPort, TensorPort

Input: TypeAlias = HostTensor | HostArray | GpuTensor | View | int
Staged: TypeAlias = tuple[TensorPort, HostArray | GpuTensor | View]
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1


def live_shapes(executable: Executable, inputs: Sequence[Input]) -> Shapes:
    """The shapes of the inputs; a ShapeError if one exceeds its maximum."""
    pairs = zip(executable.inputs, inputs, strict=True)
    return tuple([_live_shape(executable, port, given) for port, given in pairs])


def live_values(executable: Executable, inputs: Sequence[Input]) -> dict[int, int]:
    """The live integers in the inputs, by value id."""
    return {source.symbol: _integer(executable, source, inputs) for source in executable.sources}


def stage(executable: Executable, inputs: Sequence[Input], indices: Sequence[IndexRange]) -> list[Staged]:
    """The tensors among the inputs, with the element types of their buffers."""
    staged: list[Staged] = []
    for position, (port, given) in enumerate(zip(executable.inputs, inputs, strict=True)):
        if isinstance(port, TensorPort):
            try:
                staged.append((port, _staged(position, port, given, indices)))
            except InputError as error:
                raise type(error)(f"{executable.name}, input {position}: {error}") from None
    return staged


def _staged(
    position: int, port: TensorPort, given: Input, indices: Sequence[IndexRange]
) -> HostArray | GpuTensor | View:
    if isinstance(given, (GpuTensor, View)):
        if given.storage is not port.storage:
            raise DtypeError(f"{given!r} holds {given.storage}, {port} takes {port.storage}")
        return given
    if isinstance(given, HostTensor):
        array, dtype = given.array, given.dtype
    else:
        array = np.asarray(given)
        dtype = DType.of(array.dtype) or port.dtype
    for index in indices:
        if index.input == position:
            _check_range(array, index)
    return to_storage(array, dtype, port.storage)


def upload(
    device: Device, staged: Sequence[Staged], buffer_of: Callable[[TensorPort], Buffer]
) -> tuple[list[Copy], int]:
    """Upload host arrays to their buffers. Returns the copies for tensors on the GPU, and the bytes
    uploaded."""
    copies, sent = [], 0
    for port, given in staged:
        if isinstance(given, GpuTensor):
            copies.append(Copy(given.buffer, buffer_of(port), given.nbytes))
        elif isinstance(given, View):
            copies.append(Copy(given.buffer, buffer_of(port), given.nbytes, source_offset=given.offset))
        elif given.nbytes:
            device.write(buffer_of(port), given)
            sent += given.nbytes
    return copies, sent


class InputUpload:
    """Uploads host arrays that have the shapes of the last call and the types of their buffers. Such arrays
    need no other checks."""

    def __init__(self, executable: Executable, shapes: Shapes, buffers: Sequence[Buffer | None]) -> None:
        types = [port.storage.numpy for port in executable.inputs if isinstance(port, TensorPort)]
        self._places = list(zip(shapes, types, buffers, strict=True))  # buffer None: not used

    def upload(self, device: Device, inputs: Sequence[Input]) -> int | None:
        """Upload the inputs and return the bytes uploaded; None if an input has another shape or type."""
        arrays, sent = [], 0
        for given, (shape, dtype, buffer) in zip(inputs, self._places, strict=True):
            if type(given) is not HostTensor:
                return None
            array = given.array
            if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                return None
            if buffer is not None and array.nbytes:
                arrays.append((buffer, array))
                sent += array.nbytes
        for buffer, array in arrays:
            device.write(buffer, array)
        return sent


def growth_per_step(
    executable: Executable, inputs: Sequence[Input], growth: Mapping[int, int]
) -> tuple[dict[int, int], dict[PlanBuffer, tuple[int, int]]] | None:
    """The growth at every step, derived from the growth of inputs: an increment for each live integer by
    value id, and (words, increment) for each tensor by buffer. None if the host computes a live integer from
    what grows: it may grow otherwise."""
    if any(source.program and growth.keys() & {*source.inputs} for source in executable.sources):
        return None
    integers = {
        source.symbol: growth[position]
        for source in executable.sources
        for position in source.inputs
        if position in growth
    }
    shapes = live_shapes(executable, inputs)
    tensors: dict[PlanBuffer, tuple[int, int]] = {}
    for index, by in growth.items():
        port, shape = executable.inputs[index], shapes[index]
        if isinstance(port, TensorPort) and shape is not None:
            if port.storage is not Storage.I32:
                raise DtypeError(f"{executable.name}: only integers can grow from step to step, not {port}")
            tensors[port.buffer] = numel(shape), by
    return integers, tensors


def inputs_after(inputs: Sequence[Input], growth: Mapping[int, int], steps: int) -> list[Input]:
    """The inputs `steps` later. Growing inputs are integers on the host."""
    later = list(inputs)
    for index, by in growth.items():
        given = inputs[index]
        if isinstance(given, (int, np.ndarray)):
            later[index] = given + by * steps
    return later


def steps_within(
    indices: Sequence[IndexRange], inputs: Sequence[Input], growth: Mapping[int, int], most: int
) -> int:
    """For how many steps, up to `most`, growing indices stay in their ranges."""
    for index in indices:
        by, given = growth.get(index.input, 0), inputs[index.input]
        if by and isinstance(given, np.ndarray) and given.size:
            low, high = extremes(given)
            room = (index.high - high) // by if by > 0 else (index.low - low) // by
            most = min(most, 1 + room)
    return most


def _live_shape(executable: Executable, port: TensorPort | SymbolPort, given: Input) -> Shape | None:
    if isinstance(port, SymbolPort):
        return None
    if isinstance(given, HostTensor):
        given = given.array
    shape = given.shape if isinstance(given, (np.ndarray, GpuTensor, View)) else ()
    if shape == port.shape_max:
        return shape
    if len(shape) != len(port.shape_max) or any(map(gt, shape, port.shape_max)):
        raise ShapeError(
            f"{executable.name}: expected a shape up to {list(port.shape_max)}, got {list(shape)} for {port}"
        )
    return shape


def _integer(executable: Executable, source: Source, inputs: Sequence[Input]) -> int:
    """The live integer in an input, or what the host computes of inputs."""
    given = None if source.input is None else inputs[source.input]
    if given is None:
        value = _computed(executable, source, inputs)
    elif type(given) is int:
        value = given
    elif isinstance(given, np.ndarray) and given.size == 1 and source.index in (0, -1):
        value = int(given.item())  # hot path: the input of a decode step
    else:
        value = _element(f"{executable.name}, input {source.input}", source, given)
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise InputError(f"{executable.name}, {source}: {value} does not fit into 32 bits")
    return value


def _computed(executable: Executable, source: Source, inputs: Sequence[Input]) -> int:
    assert source.program is not None
    given: dict[int, HostArray | int] = {}
    for position in source.inputs:
        where, each = f"{executable.name}, input {position}", inputs[position]
        given[position] = each if isinstance(each, int) else _on_host(where, each)
    try:
        return source.program.run(given)
    except ShapeError as error:
        raise ShapeError(f"{executable.name}: a live integer is computed from {source}: {error}") from None


def _on_host(where: str, given: Input) -> HostArray:
    """An input that live integers come from, as an array."""
    if isinstance(given, View):
        raise InputError(f"{where}: a live integer is read from it, so it must be on the host")
    if isinstance(given, HostTensor):
        return given.array
    return np.asarray(given.numpy() if isinstance(given, GpuTensor) else given)


def _element(where: str, source: Source, given: Input) -> int:
    array = _on_host(where, given)
    if source.dim is not None:
        try:
            array = np.take(array, source.index, axis=source.dim)
        except IndexError:
            place = f"element {source.index} along dim {source.dim}"
            raise ShapeError(f"{where}: no {place} of shape {list(array.shape)}") from None
    if array.size != 1:
        raise ShapeError(f"{where}: expected a single integer, got shape {list(array.shape)}")
    return int(array.reshape(())[()])


def _check_range(array: HostArray, index: IndexRange) -> None:
    if array.size == 0:
        return
    low, high = extremes(array)
    if low < index.low or high > index.high:
        wrong = low if low < index.low else high
        raise InputError(f"index {wrong} of {index.operator} is outside {index.low} to {index.high}")
