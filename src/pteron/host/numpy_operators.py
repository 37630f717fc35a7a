"""ATen operators that NumPy runs, with PyTorch's own results: programs that call only these do without it.

An operator is a function from its arguments to a `Result`: the shape that it will write, and what makes it.
It raises NeedsTorch for arguments that are left to PyTorch, where that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from pteron.errors import HostError
from pteron.graph import Shape
from pteron.host.operator import Arguments, Cost, HostOperator, Parameter, check_kinds
from pteron.host.torch_table import TABLE
from pteron.host.type_promotion import NeedsTorch
from pteron.host.values import HostTensor
from pteron.ops.operand import HostArray


@dataclass(frozen=True, slots=True)
class Result:
    """What an operator writes: its shape, or those of a list; and what makes it, in memory of its own."""

    shape: Shape | list[Shape]
    make: Callable[[], HostArray | list[HostArray]]


Prepare: TypeAlias = Callable[..., Result]
FindTorch: TypeAlias = Callable[[str], HostOperator | None]
NUMPY: dict[str, tuple[Prepare, tuple[Parameter, ...]]] = {}


def define(names: str, parameters: str, written: str = "Tensor out") -> Callable[[Prepare], Prepare]:
    """Let a function be operators of ATen. `parameters` are kinds and names, as "Tensor self, int dim"; the
    function takes their values, and that of `written`, which holds the output's element type."""
    pairs = [tuple(text.split()) for text in parameters.split(", ")]
    kind, name = written.split()
    read = [Parameter(name, kind) for kind, name in pairs]
    all_of_them = (*read, Parameter(name, kind, is_written=True, is_read=False))

    def note(prepare: Prepare) -> Prepare:
        for each in names.split():
            NUMPY[f"aten::{each}"] = prepare, all_of_them
        return prepare

    return note


def find_numpy_operator(name: str, find_torch: FindTorch) -> HostOperator | None:
    """An operator by its full name, or None where NumPy has none."""
    if name not in NUMPY:
        return None
    call = _NumpyCall(name, *NUMPY[name], find_torch)
    return HostOperator(call.run, call.estimate_cost, call.parameters)


@dataclass(frozen=True, slots=True)
class _NumpyCall:
    name: str
    prepare: Prepare
    parameters: tuple[Parameter, ...]
    find_torch: FindTorch

    def estimate_cost(self, arguments: Arguments) -> Cost:
        given = arguments[: len(self.parameters)]
        check_kinds(given, self.parameters)
        try:
            prepared = self.prepare(*given)
        except NeedsTorch as reason:
            return self._torch(reason).estimate_cost(arguments)
        named = {parameter.name: value for parameter, value in zip(self.parameters, given, strict=True)}
        for rule in TABLE[self.name].rules:
            rule(named)
        shapes = prepared.shape if isinstance(prepared.shape, list) else [prepared.shape]
        items = [item for value in given[:-1] for item in (value if isinstance(value, tuple) else (value,))]
        touched = sum(map(prod, shapes)) + sum(
            item.array.size for item in items if isinstance(item, HostTensor)
        )
        return Cost({len(given) - 1: prepared.shape}, touched)

    def run(self, arguments: Arguments) -> Mapping[int, object]:
        given = arguments[: len(self.parameters)]
        try:
            prepared = self.prepare(*given)
        except NeedsTorch as reason:
            return self._torch(reason).run(arguments)
        with np.errstate(all="ignore"):  # integers wrap, and divisions by 0 give what IEEE says
            made = prepared.make()
        if isinstance(made, list):
            return {len(given) - 1: tuple(map(_held, made, given[-1]))}
        return {len(given) - 1: _held(made, given[-1])}

    def _torch(self, reason: NeedsTorch) -> HostOperator:
        found = self.find_torch(self.name)
        if found is None:
            raise HostError(f"{reason}: PyTorch needed for that: pip install 'pteron[host]'")
        return found


def _held(array: HostArray, out: HostTensor) -> HostTensor:
    return HostTensor(np.asarray(array), out.dtype)
