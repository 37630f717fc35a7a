"""Arrays and tensors of the caller (`out=`), filled with the outputs of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pteron.errors import DtypeError, InputError, ShapeError
from pteron.host.tensors import GpuTensor, HostResult, from_torch
from pteron.host.values import HostTensor, RuntimeValue
from pteron.ops.operand import HostArray
from pteron.runtime.conversion import is_torch, result
from pteron.runtime.specs import ValueSpec


class Targets:
    """What a call's outputs fill. All that is known before the call is checked here, so that a call which
    cannot give its outputs does not run. `ids` are the outputs' values."""

    def __init__(self, where: str, ids: Sequence[int], outputs: Sequence[ValueSpec], out: Any) -> None:
        if not isinstance(out, (list, tuple)) or len(out) != len(outputs):
            given = f"{len(out)} items" if isinstance(out, (list, tuple)) else f"a {type(out).__name__}"
            expected = f"a list with an array or None for each of the {len(outputs)} outputs"
            raise InputError(f"{where}: out is {given}, expected {expected}")
        self._where, self._ids = where, ids
        self._given = tuple(out)
        self._arrays = [
            None if value is None else _array(f"{where}, out {index}", spec, value)
            for index, (spec, value) in enumerate(zip(outputs, out, strict=True))
        ]
        filled = zip(outputs, self._arrays, strict=True)
        self.is_live = any(array is not None and any(spec.dynamic) for spec, array in filled)

    def check(self, ids: Sequence[int], values: Sequence[RuntimeValue]) -> None:
        """Raise a ShapeError if an output has another shape than its array. The values of these ids may not
        be computed yet."""
        found = dict(zip(ids, values, strict=True))
        for index, (id, array) in enumerate(zip(self._ids, self._arrays, strict=True)):
            value = found.get(id)
            if array is not None and isinstance(value, (GpuTensor, HostResult, HostTensor)):
                shape = value.array.shape if isinstance(value, HostTensor) else value.shape
                if array.shape != shape:
                    shapes = f"the output is {list(shape)}, the array {list(array.shape)}"
                    raise ShapeError(f"{self._where}, out {index}: {shapes}")

    def fill(self, values: Sequence[RuntimeValue], torch_out: bool) -> tuple[Any, ...]:
        """The outputs; those with an array are in it."""
        return tuple(
            result(value, torch_out, on_gpu=False) if array is None else _filled(array, given, value)
            for given, array, value in zip(self._given, self._arrays, values, strict=True)
        )


def read(
    values: Sequence[RuntimeValue], torch_out: bool, on_gpu: bool, targets: Targets | None
) -> tuple[Any, ...]:
    """The outputs of a call as the caller expects them."""
    if targets is not None:
        return targets.fill(values, torch_out)
    return tuple([result(value, torch_out, on_gpu) for value in values])


def _array(where: str, spec: ValueSpec, value: Any) -> HostArray:
    """The memory of an array or a tensor."""
    if spec.dtype is None or not (isinstance(value, np.ndarray) or is_torch(value)):
        raise InputError(f"{where}: a {type(value).__name__} cannot be filled with {spec}")
    array = value if isinstance(value, np.ndarray) else from_torch(value)[0]
    if array.dtype != spec.dtype.numpy:
        raise DtypeError(f"{where}: expected {spec.dtype}, got {value.dtype}")
    if spec.misfit(array.shape):
        raise ShapeError(f"{where}: expected {spec}, got {list(array.shape)}")
    if array is not value and array.ctypes.data != value.data_ptr():
        raise InputError(f"{where}: expected a tensor in host memory, got one on {value.device}")
    if not array.flags.writeable:
        raise InputError(f"{where}: the array is read-only")
    return array


def _filled(array: HostArray, given: Any, value: RuntimeValue) -> Any:
    if isinstance(value, GpuTensor):
        value = value.fetch()
    if isinstance(value, HostResult):
        value.fill(array)
    elif isinstance(value, HostTensor):
        np.copyto(array, value.array)
    return given
