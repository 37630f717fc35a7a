"""Operators of the table (torch_table.py), run by PyTorch on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.graph import Shape
from pteron.host.operator import SCALAR_TYPES, Arguments, HostCall, HostOperator, Parameter, check_kinds
from pteron.host.tensors import from_torch, to_torch
from pteron.host.torch_table import TABLE, Family
from pteron.host.values import HostTensor, UnsetTensor

# PyTorch warns once per process when a tensor is made of read-only memory. Constants (views of the file) and
# inputs are read-only, and no operator writes to them: the warning is triggered here and discarded.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(bytes(4), np.uint8))

_DTYPES = {
    str(dtype): torch.bfloat16 if dtype is DType.BF16 else getattr(torch, dtype.numpy.name) for dtype in DType
}
_TYPE_NAMES = ("u8", "i8", "i16", "i32", "i64", "f16", "f32", "f64", "bool", "bf16")
_SCALAR_TYPES = {code: _DTYPES[name] for code, name in zip(SCALAR_TYPES, _TYPE_NAMES, strict=True)}
_SHAPES_MAX = 64  # calls whose shapes an operator keeps
Convert: TypeAlias = Callable[[Any, Parameter], torch.Tensor]
Written: TypeAlias = Mapping[str, Shape | list[Shape]]  # by argument name


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
    return HostOperator(call.prepare, parameters)


@dataclass(frozen=True, slots=True)
class _TorchCall:
    """An overload, called with host tensors."""

    overload: Any
    family: Family
    parameters: tuple[Parameter, ...]
    named: frozenset[str]  # keyword-only parameters
    shapes: dict[object, Written] = field(default_factory=dict)

    def prepare(self, arguments: Arguments) -> HostCall:
        arguments = arguments[: len(self.parameters)]
        check_kinds(arguments, self.parameters)
        named = {parameter.name: value for parameter, value in zip(self.parameters, arguments, strict=True)}
        for rule in self.family.rules:
            rule(named)
        shapes = self.family.shapes(named) if self.family.shapes else self._shapes(arguments)
        written = [
            shape for each in shapes.values() for shape in (each if isinstance(each, list) else [each])
        ]
        read = [named[parameter.name] for parameter in self.parameters if parameter.is_read]
        touched = sum(tensor.array.size for tensor in _tensors(read)) + sum(map(prod, written))
        products = self.family.work(named, written) if self.family.work else 0
        scratch = self.family.scratch(named, written) if self.family.scratch else 0
        places = {parameter.name: place for place, parameter in enumerate(self.parameters)}
        by_place = {places[name]: shape for name, shape in shapes.items()}
        return HostCall(partial(self._run, arguments), by_place, touched, products, scratch)

    def _shapes(self, arguments: Arguments) -> Written:
        """The shapes that PyTorch's own shape functions give: the operator runs on tensors without memory."""
        key = tuple(map(_key, arguments))
        if key not in self.shapes:
            if len(self.shapes) >= _SHAPES_MAX:
                self.shapes.clear()
            self.shapes[key] = {
                name: _shape_of(value) for name, value in self._call(arguments, _meta).items()
            }
        return self.shapes[key]

    def _run(self, arguments: Arguments) -> Mapping[int, object]:
        written = self._call(arguments, _contiguous if self.family.is_dense else _in_memory)
        return {
            place: _from_torch(written[parameter.name])
            for place, parameter in enumerate(self.parameters)
            if parameter.is_written
        }

    def _call(self, arguments: Arguments, convert: Convert) -> dict[str, Any]:
        """Call the overload, with tensors converted by `convert`; what it wrote, by name."""
        given = {
            parameter.name: _to_torch(value, parameter.kind, parameter, convert)
            for parameter, value in zip(self.parameters, arguments, strict=True)
        }
        by_place = [value for name, value in given.items() if name not in self.named]
        try:
            self.overload(*by_place, **{name: given[name] for name in self.named})
        except Exception as error:  # any complaint of PyTorch
            raise HostError((str(error).splitlines() or [type(error).__name__])[0]) from error
        return {
            parameter.name: given[parameter.name] for parameter in self.parameters if parameter.is_written
        }


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
    return _SCALAR_TYPES[value] if kind == "ScalarType" else bool(value) if kind == "bool" else value


def _in_memory(value: Any, parameter: Parameter) -> torch.Tensor:
    """A tensor over the value's memory, or over a copy if the operator writes memory that the call does not
    own. An output starts empty and operators resize it, so other references to the old value stay valid."""
    if not parameter.is_read:
        return torch.empty(0, dtype=_DTYPES[str(value.dtype)])
    is_copied = parameter.is_written and not value.array.flags.writeable
    return to_torch(value.array.copy() if is_copied else value.array, value.dtype)


def _contiguous(value: Any, parameter: Parameter) -> torch.Tensor:
    if not parameter.is_read:
        return _in_memory(value, parameter)
    return to_torch(value.array.copy(order="C"), value.dtype)


def _meta(value: Any, parameter: Parameter) -> torch.Tensor:
    """A tensor of the value's shape without memory."""
    shape = value.array.shape if parameter.is_read else (0,)
    return torch.empty(shape, dtype=_DTYPES[str(value.dtype)], device="meta")


def _key(value: object) -> object:
    """The part of an argument that decides the shapes written."""
    if isinstance(value, HostTensor):
        return value.array.shape, value.dtype
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    return (type(value), value) if not isinstance(value, UnsetTensor) else value.dtype


def _tensors(arguments: Arguments) -> list[HostTensor]:
    flat = (item for value in arguments for item in (value if isinstance(value, tuple) else (value,)))
    return [item for item in flat if isinstance(item, HostTensor)]


def _shape_of(value: Any) -> Shape | list[Shape]:
    return [tuple(item.shape) for item in value] if isinstance(value, list) else tuple(value.shape)


def _from_torch(value: Any) -> object:
    return tuple(map(_from_torch, value)) if isinstance(value, list) else HostTensor(*from_torch(value))
