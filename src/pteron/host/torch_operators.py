"""Operators of the table (torch_table.py), run by PyTorch on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from pteron.dtypes import SCALAR_TYPES, DType
from pteron.errors import HostError
from pteron.host.operator import Arguments, HostOperator, Parameter, check_kinds
from pteron.host.tensors import from_torch, to_torch
from pteron.host.torch_table import TABLE, Family
from pteron.host.values import HostTensor

# PyTorch warns once per process when a tensor is made of read-only memory. Constants (views of the file) and
# inputs are read-only, and no operator writes to them: the warning is triggered here and discarded.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(bytes(4), np.uint8))

_DTYPES = {
    dtype: torch.bfloat16 if dtype is DType.BF16 else getattr(torch, dtype.numpy.name) for dtype in DType
}
# A dry run computes inputs of up to this many elements: without data, PyTorch imports SymPy for some
# operators, which takes longer.
_DRY_ELEMENTS = 1 << 16
Convert: TypeAlias = Callable[[Any, Parameter], torch.Tensor]


def find_torch_operator(name: str) -> HostOperator | None:
    """An operator of the table by its full name, or None."""
    family = TABLE.get(name)
    if family is None:
        return None
    packet, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
    if found is None:  # not in this version of PyTorch
        return None
    parameters = tuple(
        Parameter(
            argument.name,
            str(argument.real_type),
            is_written=argument.alias_info is not None and argument.alias_info.is_write,
            is_read=not (argument.kwarg_only and argument.alias_info is not None),
        )
        for argument in found._schema.arguments
    )
    named = frozenset(argument.name for argument in found._schema.arguments if argument.kwarg_only)
    call = _TorchCall(found, family, parameters, named)
    return HostOperator(call.run, parameters, call.run_dry)


@dataclass(frozen=True, slots=True)
class _TorchCall:
    """An overload, called with host tensors."""

    overload: Any
    family: Family
    parameters: tuple[Parameter, ...]
    named: frozenset[str]  # keyword-only parameters

    def run(self, arguments: Arguments) -> Mapping[int, object]:
        return self._call(arguments, _contiguous if self.family.is_dense else _in_memory)

    def run_dry(self, arguments: Arguments) -> Mapping[int, object]:
        sizes = (value.array.size for value in arguments if isinstance(value, HostTensor))
        if sum(sizes) <= _DRY_ELEMENTS:
            return self.run(arguments)
        return self._convolve_dry(arguments) or self._call(arguments, _without_data)

    def _convolve_dry(self, arguments: Arguments) -> Mapping[int, object] | None:
        """A convolution of no images has the other sizes and the errors of one of many, and takes no time.
        None for other operators."""
        if self.overload is not torch.ops.aten.convolution.out:
            return None
        check_kinds(arguments[: len(self.parameters)], self.parameters)
        images, weight, *others = arguments
        if images.array.ndim != weight.array.ndim or not weight.array.ndim:  # it is one image
            return None
        none = HostTensor(images.array[:0], images.dtype)
        ((place, made),) = self._call([none, weight, *others], _in_memory).items()
        shape = (len(images.array), *made.array.shape[1:])
        return {place: HostTensor(np.broadcast_to(np.zeros((), made.dtype.numpy), shape), made.dtype)}

    def _call(self, arguments: Arguments, convert: Convert) -> Mapping[int, Any]:
        arguments = arguments[: len(self.parameters)]
        check_kinds(arguments, self.parameters)
        named = {parameter.name: value for parameter, value in zip(self.parameters, arguments, strict=True)}
        for rule in self.family.rules:
            rule(named)
        given = {
            parameter.name: _to_torch(named[parameter.name], parameter.kind, parameter, convert)
            for parameter in self.parameters
        }
        by_place = [value for name, value in given.items() if name not in self.named]
        try:
            self.overload(*by_place, **{name: given[name] for name in self.named})
            return {
                place: _from_torch(given[parameter.name])
                for place, parameter in enumerate(self.parameters)
                if parameter.is_written
            }
        except Exception as error:  # any complaint of PyTorch
            raise HostError((str(error).splitlines() or [type(error).__name__])[0]) from error


# Conversions --------------------------------------------------------------------------------------


def _to_torch(value: Any, kind: str, parameter: Parameter, convert: Convert) -> Any:
    """A value of a parameter's kind as PyTorch takes it. Memory formats are dropped: arrays go by their
    logical shape, whatever their strides."""
    kind = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    if value is None or kind == "MemoryFormat":
        return None
    if kind.startswith("List["):
        return [_to_torch(item, kind[len("List[") : -1], parameter, convert) for item in value]
    if kind == "Tensor":
        return convert(value, parameter)
    return _DTYPES[SCALAR_TYPES[value]] if kind == "ScalarType" else bool(value) if kind == "bool" else value


def _in_memory(value: Any, parameter: Parameter) -> torch.Tensor:
    """A tensor over the value's memory, or over a copy if the operator writes memory that the call does not
    own. An output starts empty and operators resize it, so other references to the old value stay valid."""
    if not parameter.is_read:
        return torch.empty(0, dtype=_DTYPES[value.dtype])
    is_copied = parameter.is_written and not value.array.flags.writeable
    return to_torch(value.array.copy() if is_copied else value.array, value.dtype)


def _contiguous(value: Any, parameter: Parameter) -> torch.Tensor:
    if not parameter.is_read:
        return _in_memory(value, parameter)
    return to_torch(value.array.copy(order="C"), value.dtype)


def _without_data(value: Any, parameter: Parameter) -> torch.Tensor:
    return torch.empty(
        value.array.shape if parameter.is_read else 0, dtype=_DTYPES[value.dtype], device="meta"
    )


def _from_torch(value: Any) -> object:
    if isinstance(value, list):
        return tuple(map(_from_torch, value))
    if value.is_meta:
        value = torch.zeros((), dtype=value.dtype).expand(value.shape)
    return HostTensor(*from_torch(value))
