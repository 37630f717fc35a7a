"""Live integers: read from inputs and shapes, computed on the host, never dispatched."""

from __future__ import annotations

from pteron.ops import AnyInt, Dispatch, Kind, Operand, define, require
from pteron.ops.operator import Compute
from pteron.ops.shapes import axis


def _source(*_: object) -> tuple[Dispatch, ...]:
    return ()  # its value is read from the call's inputs before planning


_ELEMENT = "x dim:int index:int -> out:symint"
define("et_vk.select_as_symint.default", _ELEMENT, shape=None, compute=_source, kind=Kind.SOURCE)


def scalar(name: str, compute: Compute, signature: str = "a:int b:int -> out:symint") -> None:
    define(name, signature, shape=None, compute=compute, kind=Kind.SCALAR)


def _floordiv(a: AnyInt, b: AnyInt) -> AnyInt:
    require(b != 0, "floordiv by zero")
    return a // b


def _size(x: Operand, dim: int) -> AnyInt:
    return x.shape[axis(dim, x.rank)]


# Of a live dim it is that live integer.
scalar("sym_size.int", _size, "self dim:int -> out:symint")
scalar("add", lambda a, b: a + b)
scalar("sub", lambda a, b: a - b)
scalar("mul", lambda a, b: a * b)
scalar("floordiv", _floordiv)
# Comparisons are 1 or 0.
scalar("lt", lambda a, b: int(a < b))
scalar("gt", lambda a, b: int(a > b))
scalar("ge", lambda a, b: int(a >= b))
scalar("le", lambda a, b: int(a <= b))
scalar("eq", lambda a, b: int(a == b))
