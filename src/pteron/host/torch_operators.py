"""Operators that PyTorch runs on the CPU: those of the table, given what their schemas and rules admit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch

from pteron.errors import HostError
from pteron.gpu.tensors import from_torch, to_torch
from pteron.graph import Shape
from pteron.host.limits import check_integer
from pteron.host.operator import NUMBERS, Arguments, Cost, HostOperator, Parameter, kind_error
from pteron.host.rules import NamedArguments, require
from pteron.host.torch_table import TABLE, Family
from pteron.host.values import HostTensor, UnsetTensor

# Constants are views into the program's file, and inputs the caller's: memory that operators never write to.
# PyTorch warns of such memory once in a process: here, where nobody hears it.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(bytes(4), np.uint8))

_DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
# Element types as programs number them.
_SCALAR_TYPES = dict(enumerate((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)))
_SCALAR_TYPES |= {5: torch.float16, 6: torch.float32, 7: torch.float64, 11: torch.bool, 15: torch.bfloat16}
_MEMORY_FORMATS = range(4)  # contiguous, preserve, channels last, channels last in 3d
_SHAPES_KEPT_MAX = 64  # forecasts that an operator keeps
Written: TypeAlias = Mapping[str, Shape | list[Shape]]  # by the names of arguments


def find_torch_operator(name: str) -> HostOperator | None:
    """An operator of the table by its full name, or None."""
    family = TABLE.get(name)
    if family is None:
        return None
    packet, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
    if found is None:  # another PyTorch than the table was written for
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
    return HostOperator(call.run, call.estimate_cost, parameters)


@dataclass(frozen=True, slots=True)
class _TorchCall:
    """An overload, called with host tensors."""

    overload: Any
    family: Family
    parameters: tuple[Parameter, ...]
    named: frozenset[str]  # those that are passed by name
    shapes_kept: dict[object, Written] = field(default_factory=dict)

    def estimate_cost(self, arguments: Arguments) -> Cost:
        """Refuse what must not be run, and find the shapes that will be written."""
        named = {parameter.name: value for parameter, value in zip(self.parameters, arguments, strict=False)}
        given = [_given(*pair, _meta) for pair in zip(arguments, self.parameters, strict=False)]
        for rule in self.family.rules:
            rule(named)
        if self.family.forward is not None:
            _check_gradient(self.family.forward, named)
        shapes = self.family.shapes(named) if self.family.shapes else self._shapes(arguments, given)
        written = [
            shape for each in shapes.values() for shape in (each if isinstance(each, list) else [each])
        ]
        read = [named[parameter.name] for parameter in self.parameters if parameter.is_read]
        touched = sum(tensor.array.size for tensor in _tensors(read)) + sum(map(prod, written))
        products = self.family.work(named, written) if self.family.work else 0
        scratch = self.family.scratch(named, written) if self.family.scratch else 0
        places = {parameter.name: place for place, parameter in enumerate(self.parameters)}
        return Cost({places[name]: shape for name, shape in shapes.items()}, touched, products, scratch)

    def _shapes(self, arguments: Arguments, given: list[Any]) -> Written:
        """What the operator writes to tensors without memory."""
        key = tuple(map(_key, arguments[: len(self.parameters)]))
        if key not in self.shapes_kept:
            self._call(given)
            if len(self.shapes_kept) >= _SHAPES_KEPT_MAX:
                self.shapes_kept.clear()
            each = zip(self.parameters, given, strict=True)
            self.shapes_kept[key] = {
                parameter.name: _shape_of(value) for parameter, value in each if parameter.is_written
            }
        return self.shapes_kept[key]

    def run(self, arguments: Arguments) -> Mapping[int, object]:
        place = _dense if self.family.is_dense else _array
        given = [_given(*pair, place) for pair in zip(arguments, self.parameters, strict=False)]
        self._call(given)
        each = zip(self.parameters, given, strict=True)
        return {place: _taken(value) for place, (parameter, value) in enumerate(each) if parameter.is_written}

    def _call(self, given: list[Any]) -> None:
        by_name = {
            p.name: value for p, value in zip(self.parameters, given, strict=True) if p.name in self.named
        }
        by_place = [
            value for p, value in zip(self.parameters, given, strict=True) if p.name not in self.named
        ]
        try:
            self.overload(*by_place, **by_name)
        except Exception as error:  # whatever PyTorch has against them
            raise HostError(_sentence(error)) from error


def _check_gradient(forward: str, named: NamedArguments) -> None:
    """Hold `grad_output` to the shape of what its operator, going forward, gives."""
    overload = getattr(torch.ops.aten, forward).default
    arguments = {
        argument.name: _given(
            named.get(argument.name), Parameter(argument.name, str(argument.real_type)), _meta
        )
        for argument in overload._schema.arguments
    }
    try:
        result = overload(**arguments)
    except Exception as error:  # whatever PyTorch has against them
        raise HostError(_sentence(error)) from error
    expected = tuple((result[0] if isinstance(result, tuple) else result).shape)
    found = named["grad_output"].array.shape
    require(found == expected, f"grad_output is {list(found)}; {forward} gives {list(expected)}")


def _sentence(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


# Arguments --------------------------------------------------------------------------------------


def _given(value: object, parameter: Parameter, tensor: Callable[[HostTensor, bool], Any]) -> Any:
    """A value as PyTorch takes it, refused where it is not what the operator's schema has there."""
    kind = parameter.kind
    if kind.startswith("Optional["):
        if value is None:
            return None
        kind = kind[len("Optional[") : -1]
    if kind.startswith("List["):
        if not isinstance(value, tuple):
            raise kind_error(value, parameter)
        of_one = Parameter(parameter.name, kind[len("List[") : -1], parameter.is_written, parameter.is_read)
        return [_given(item, of_one, tensor) for item in value]
    if kind == "Tensor":
        return _tensor(value, parameter, tensor)
    if kind in NUMBERS:
        if not isinstance(value, NUMBERS[kind]):
            raise kind_error(value, parameter)
        check_integer(value)
        return bool(value) if kind == "bool" else value
    if kind == "ScalarType" and value in _SCALAR_TYPES:
        return _SCALAR_TYPES[value]
    if kind == "MemoryFormat" and value in _MEMORY_FORMATS:
        return None  # arrays go by their logical shape, whatever their strides
    raise kind_error(value, parameter)


def _tensor(value: object, parameter: Parameter, tensor: Callable[[HostTensor, bool], Any]) -> Any:
    """A tensor. One that is only written starts out empty: operators resize it, and what else refers to the
    old value keeps it."""
    if isinstance(value, (HostTensor, UnsetTensor)) and not parameter.is_read:
        return torch.empty(0, dtype=_DTYPES[str(value.dtype)], device="meta" if tensor is _meta else "cpu")
    if isinstance(value, UnsetTensor):
        raise TypeError(f"{parameter.name} is a tensor that nothing has written yet")
    if not isinstance(value, HostTensor):
        raise kind_error(value, parameter)
    return tensor(value, parameter.is_written)


def _array(value: HostTensor, is_written: bool) -> torch.Tensor:
    """A tensor over the value's memory, or over a copy where that is not the call's own to write to."""
    is_copied = is_written and not value.array.flags.writeable
    return to_torch(value.array.copy() if is_copied else value.array, value.dtype)


def _dense(value: HostTensor, is_written: bool) -> torch.Tensor:
    """A tensor whose elements lie in the order of its dims."""
    return to_torch(value.array.copy(), value.dtype)


def _meta(value: HostTensor, is_written: bool) -> torch.Tensor:
    """A tensor of that shape without memory."""
    return torch.empty(value.array.shape, dtype=_DTYPES[str(value.dtype)], device="meta")


def _key(value: object) -> object:
    """What of an argument decides the shapes that are written."""
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


def _taken(value: Any) -> object:
    """What PyTorch wrote, as the host holds it."""
    return tuple(map(_taken, value)) if isinstance(value, list) else HostTensor(*from_torch(value))
