"""Live integers: read from inputs and shapes, computed on the host, never dispatched."""

from __future__ import annotations

from pteron.ops import AnyInt, Dispatch, Kind, Operand, define, require
from pteron.ops.operator import Compute
from pteron.ops.shapes import axis


def _source(*_: object) -> tuple[Dispatch, ...]:
    return ()  # its value is read from the call's inputs before planning


define(
    "et_vk.select_as_symint.default",
    "x dim:int index:int -> out:symint",
    shape=None,
    compute=_source,
    kind=Kind.SOURCE,
)


def _scalar(name: str, signature: str, compute: Compute) -> None:
    define(name, signature, shape=None, compute=compute, kind=Kind.SCALAR)


def _floordiv(a: AnyInt, b: AnyInt) -> AnyInt:
    require(b != 0, "floordiv by zero")
    return a // b


def _size(x: Operand, dim: int) -> AnyInt:
    return x.shape[axis(dim, x.rank)]


# A plan is made for given shapes, so a size is a plain number in it.
_scalar("sym_size.int", "self dim:int -> out:symint", _size)
_scalar("add", "a:int b:int -> out:symint", lambda a, b: a + b)
_scalar("sub", "a:int b:int -> out:symint", lambda a, b: a - b)
_scalar("mul", "a:int b:int -> out:symint", lambda a, b: a * b)
_scalar("floordiv", "a:int b:int -> out:symint", _floordiv)
