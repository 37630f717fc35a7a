"""An element as its tensor stores it: all types except floats are 32-bit words."""

from __future__ import annotations

from pteron.dtypes import DType
from pteron.ops import Operand

_BITS = {DType.I8: 8, DType.I16: 16}


def element(expression: str, compute: str, out: Operand) -> str:
    """The WGSL expression of an element of `out`: booleans are 0 or 1, narrow integers wrap round."""
    if out.dtype is DType.BOOL:
        return f"R(!(T({expression}) == T(0)))"
    if compute == "i32" and out.dtype is DType.U8:
        return f"R(T({expression}) & 255)"
    if compute == "i32" and out.dtype in _BITS:
        unused = f"{32 - _BITS[out.dtype]}u"
        return f"R((T({expression}) << {unused}) >> {unused})"
    return f"R({expression})"
