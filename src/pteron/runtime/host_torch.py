"""ATen and other registered operators, run by PyTorch on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pteron.errors import HostError
from pteron.runtime.host_operator import Arguments, HostOperator, Parameter
from pteron.runtime.host_values import HostTensor, Unset
from pteron.runtime.tensors import from_torch, to_torch

# Constants are views into the program's file, which operators never write to. PyTorch warns of such memory
# once in a process: here, where nobody hears it.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(bytes(4), np.uint8))

_REFUSED = {"aten::from_file"}  # reaches beyond its arguments: a program must not choose files to read

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


def find_torch_operator(name: str) -> HostOperator | None:
    """A registered operator by its full name, or None; only one that writes its arguments is of use."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    if f"{namespace}::{base}" in _REFUSED:
        return None
    try:
        overload_packet = getattr(getattr(torch.ops, namespace), base)
        found = getattr(overload_packet, overload or "default")
        arguments = found._schema.arguments
    except (AttributeError, RuntimeError):
        return None
    parameters = tuple(
        Parameter(
            argument.name,
            str(argument.type),
            is_written=argument.alias_info is not None and argument.alias_info.is_write,
            is_read=not (argument.kwarg_only and argument.alias_info is not None),
        )
        for argument in arguments
    )
    named = tuple(argument.name if argument.kwarg_only else None for argument in arguments)
    if not any(parameter.is_written for parameter in parameters):
        return None
    return HostOperator(_TorchCall(found, parameters, named), parameters)


@dataclass(frozen=True, slots=True)
class _TorchCall:
    """An overload, called with host tensors."""

    overload: Any
    parameters: tuple[Parameter, ...]
    named: tuple[str | None, ...]  # those that are passed by name

    def __call__(self, arguments: Arguments) -> Mapping[int, object]:
        positional, named, written = [], {}, {}
        each = zip(self.parameters, self.named, arguments, strict=False)
        for position, (parameter, name, value) in enumerate(each):
            given = _given(value, parameter)
            if name is None:
                positional.append(given)
            else:
                named[name] = given
            if parameter.is_written:
                written[position] = given
        try:
            self.overload(*positional, **named)
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            raise HostError(f"{self.overload.name()}: {str(error).splitlines()[0]}") from error
        return {position: _taken(value) for position, value in written.items()}


def _given(value: object, parameter: Parameter) -> Any:
    """A value as PyTorch takes it. What is only written starts out empty: operators resize it, and what
    else refers to the old value keeps it."""
    if isinstance(value, tuple):
        return [_given(item, parameter) for item in value]
    if isinstance(value, (HostTensor, Unset)) and not parameter.is_read:
        return torch.empty(0, dtype=_DTYPES[str(value.dtype)])
    if isinstance(value, HostTensor):
        is_copied = parameter.is_written and not value.array.flags.writeable
        return to_torch(value.array.copy() if is_copied else value.array, value.dtype)
    if isinstance(value, Unset):
        raise TypeError(f"{parameter.name} is a tensor that nothing has written yet")
    return value


def _taken(value: Any) -> object:
    """What PyTorch wrote, as the host holds it."""
    return tuple(map(_taken, value)) if isinstance(value, list) else HostTensor(*from_torch(value))
