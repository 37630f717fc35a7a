"""Live integers: read from inputs and shapes, computed on the host, never dispatched."""

from __future__ import annotations

from pteron.ops.dispatch import Dispatch
from pteron.ops.live import AnyInt
from pteron.ops.operand import Operand
from pteron.ops.registry import Dispatches, define, require
from pteron.ops.shapes import axis


def _source(*_: object) -> tuple[Dispatch, ...]:
    return ()  # its value is read from the call's inputs before planning


define(
    "et_vk.select_as_symint.default",
    "x dim:int index:int -> out:symint",
    shape=None,
    dispatches=_source,
    is_source=True,
)


def _scalar(name: str, signature: str, compute: Dispatches) -> None:
    define(name, signature, shape=None, dispatches=compute, is_scalar=True)


def _floordiv(a: AnyInt, b: AnyInt) -> AnyInt:
    require(b != 0, "floordiv by zero")
    return a // b


def _size(x: Operand, dim: int) -> AnyInt:
    return x.shape[axis(dim, x.rank)]


# A plan is made for given shapes, so a size is a plain number in it.
_scalar("sym_size.int", "self dim:int -> out:symint", _size)  # type: ignore[arg-type]
_scalar("add", "a:int b:int -> out:symint", lambda a, b: a + b)
_scalar("sub", "a:int b:int -> out:symint", lambda a, b: a - b)
_scalar("mul", "a:int b:int -> out:symint", lambda a, b: a * b)
_scalar("floordiv", "a:int b:int -> out:symint", _floordiv)  # type: ignore[arg-type]
