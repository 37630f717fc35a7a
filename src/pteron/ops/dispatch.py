"""A Dispatch: one kernel over named operands and parameters. Operators yield them, plans collect them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.ops.live import AnyInt
from pteron.ops.operand import Operand, OperandSlice, Scratch, Weight
from pteron.wgsl import Kernel

Bound: TypeAlias = Operand | Weight | Scratch | OperandSlice
Parameter: TypeAlias = AnyInt | float | bool | Sequence[AnyInt]


def elements(bound: Bound) -> AnyInt:
    """The number of scalars of a binding."""
    if isinstance(bound, OperandSlice):
        return bound.of.numel - bound.first
    return bound.numel if isinstance(bound, Operand) else bound.count


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """`Dispatch(kernel("rope"), x=x, out=out, half=8, threads=n)`: names are those of the kernel's WGSL.

    The grid is given as `threads`, a number of invocations along one axis (folded where it exceeds
    what a device dispatches), or as `groups`, a number of workgroups per axis. None is an
    absent optional operand. Names in capitals are overrides of the kernel; None leaves their default. Texts
    are formulas of the kernel.
    """

    kernel: Kernel
    bindings: Mapping[str, Bound]
    parameters: Mapping[str, Parameter]
    threads: AnyInt | None
    groups: tuple[AnyInt, AnyInt, AnyInt] | None

    def __init__(
        self,
        kernel: Kernel,
        *,
        threads: AnyInt | None = None,
        groups: tuple[AnyInt, AnyInt, AnyInt] | None = None,
        **arguments: Bound | Parameter | str | None,
    ) -> None:
        if (threads is None) == (groups is None):
            raise ValueError("a dispatch takes either threads or groups")
        bindings: dict[str, Bound] = {}
        parameters: dict[str, Parameter] = {}
        given: dict[str, object] = {}
        for name, value in arguments.items():
            if value is None:
                continue
            if isinstance(value, (Operand, Weight, Scratch, OperandSlice)):
                bindings[name] = value
            elif name.isupper() or isinstance(value, str):
                given[name] = value
            else:
                parameters[name] = value
        object.__setattr__(self, "kernel", kernel.launched(bindings, given))
        object.__setattr__(self, "bindings", bindings)
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "threads", threads)
        object.__setattr__(self, "groups", groups)

    @property
    def arguments(self) -> dict[str, Any]:
        """What it was made of, besides its grid."""
        return {**dict(self.kernel.given), **self.bindings, **self.parameters}


@dataclass(frozen=True, slots=True, eq=False)
class Indices:
    """Yielded with a dispatch that gathers by index: `operand` holds indices from `low` to `high`.

    A kernel cannot raise an error for an index out of range, but the host can if the indices are an input.
    """

    operand: Operand
    low: AnyInt
    high: AnyInt
