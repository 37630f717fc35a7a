"""Integer operators on the host, for live integers that are computed from a call's inputs.

In: the arguments of an operator in the order of its signature, tensors as NumPy arrays of int64 or bool. Out:
an array, a list of arrays, or a live integer. It has 64 bits, as in PyTorch; who uses it checks that it fits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from pteron.ops.operand import HostArray

Axes: TypeAlias = tuple[int, ...]
ELEMENTS_MAX = 1 << 14  # of a result: a file must not make the host compute much


def _divide(a: HostArray, b: HostArray, rounding: str | None) -> HostArray:
    if rounding == "floor":
        return np.asarray(np.floor_divide(a, b))
    if rounding == "trunc":
        return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))
    raise ValueError("the quotient of integers without rounding is no integer")


def _clamp(x: HostArray, low: int | None, high: int | None) -> HostArray:
    low, high = (None if bound is None else int(bound) for bound in (low, high))
    return x if low is None and high is None else np.clip(x, low, high)


def _squeeze(x: HostArray, dims: Axes) -> HostArray:
    return x.squeeze(tuple(dim for dim in dims if x.ndim and x.shape[dim] == 1))


def _expand(x: HostArray, size: Axes, _: bool) -> HostArray:
    own = (1,) * (len(size) - x.ndim) + x.shape
    return np.broadcast_to(
        x, _sized(tuple(old if new == -1 else new for old, new in zip(own, size, strict=True)))
    )


def _slice(x: HostArray, dim: int, start: int | None, end: int | None, step: int) -> HostArray:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _repeat(x: HostArray, repeats: Axes) -> HostArray:
    _sized((*repeats, x.size))
    return np.tile(x, repeats)


def _full(size: Axes, value: float) -> HostArray:
    return np.full(_sized(size), int(value))


def _arange(start: float, end: float, step: float) -> HostArray:
    count = range(int(start), int(end), int(step))
    _sized((len(count),))
    return np.array(count, np.int64)


def _sized(shape: Axes) -> Axes:
    if prod(shape) > ELEMENTS_MAX:
        raise ValueError(f"{list(shape)} is more than {ELEMENTS_MAX:,} elements")
    return shape


def _split(x: HostArray, sizes: Axes, dim: int) -> list[HostArray]:
    return np.split(x, np.cumsum(sizes)[:-1], dim)


def _pad(x: HostArray, pad: Axes, value: float | None) -> HostArray:
    """The widths are those of the last dim first; negative ones cut."""
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[0::2], pad[1::2], strict=True))[::-1]
    _sized(tuple(size + low + high for (low, high), size in zip(pairs, x.shape, strict=True)))
    cut = tuple(
        slice(max(0, -low), size - max(0, -high)) for (low, high), size in zip(pairs, x.shape, strict=True)
    )
    return np.pad(
        x[cut], [(max(0, low), max(0, high)) for low, high in pairs], constant_values=int(value or 0)
    )


def _index(x: HostArray, indices: Sequence[HostArray | None]) -> HostArray:
    return np.asarray(x[tuple(slice(None) if each is None else each for each in indices)])


def _gather(x: HostArray, dim: int, index: HostArray) -> HostArray:
    within = tuple(
        slice(size) if axis != dim % x.ndim else slice(None) for axis, size in enumerate(index.shape)
    )
    return np.take_along_axis(x[within], index.astype(np.int64), dim)


def _element(x: HostArray, dim: int, index: int) -> int:
    return int(np.take(x, index, dim).item())


HostOperator: TypeAlias = Callable[..., Any]
_SAME: HostOperator = lambda x, *_: x  # noqa: E731  # a row of a table, as the others
_BINARY: dict[str, HostOperator] = {
    "minimum.default": np.minimum, "maximum.default": np.maximum, "mul.Tensor": np.multiply,
    "pow.Tensor_Tensor": np.power, "pow.Tensor_Scalar": lambda a, b: np.power(a, int(b)),
    "remainder.Tensor": np.remainder, "remainder.Scalar": lambda a, b: np.remainder(a, int(b)),
    "bitwise_and.Tensor": np.bitwise_and, "bitwise_or.Tensor": np.bitwise_or,
    "logical_and.default": np.logical_and, "logical_or.default": np.logical_or,
    "add.Tensor": lambda a, b, alpha: a + alpha * b, "sub.Tensor": lambda a, b, alpha: a - alpha * b,
    "div.Tensor_mode": _divide,
}  # fmt: skip
_COMPARISONS = {
    f"{name}.{kind}": getattr(operator, name)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("Tensor", "Scalar")
}
_UNARY: dict[str, HostOperator] = {
    "abs.default": np.abs, "neg.default": np.negative, "relu.default": lambda x: np.maximum(x, 0),
    "bitwise_not.default": np.invert, "logical_not.default": np.logical_not, "clamp.default": _clamp,
    "_to_copy.default": _SAME, "clone.default": _SAME, "alias_copy.default": _SAME, "copy.default": _SAME,
}  # fmt: skip
_LAYOUT: dict[str, HostOperator] = {
    "view_copy.default": np.reshape, "permute_copy.default": np.transpose, "permute.default": np.transpose,
    "t_copy.default": np.transpose, "squeeze_copy.dims": _squeeze, "unsqueeze_copy.default": np.expand_dims,
    "expand_copy.default": _expand, "repeat.default": _repeat,
    "flip.default": np.flip, "cat.default": np.concatenate,
    "select_copy.int": lambda x, dim, index: np.take(x, index, dim), "slice_copy.Tensor": _slice,
    "split_with_sizes_copy.default": _split, "constant_pad_nd.default": _pad, "index.Tensor": _index,
    "index_select.default": lambda x, dim, index: np.take(x, index, dim), "gather.default": _gather,
}  # fmt: skip
_FILLED: dict[str, HostOperator] = {
    "full.default": _full, "full_like.default": lambda x, value: _full(x.shape, value),
    "ones.default": lambda size: _full(size, 1), "ones_like.default": lambda x: _full(x.shape, 1),
    "zeros.default": lambda size: _full(size, 0), "zeros_like.default": lambda x: _full(x.shape, 0),
    "scalar_tensor.default": lambda value: _full((), value), "arange.start_step": _arange,
}  # fmt: skip
_ATEN = _BINARY | _COMPARISONS | _UNARY | _LAYOUT | _FILLED
_COPIES = (
    "et_vk.prepack.default",
    "dim_order_ops._to_dim_order_copy.default",
    "dim_order_ops._clone_dim_order.default",
)
_NUMBERS: dict[str, HostOperator] = {
    "sym_size.int": lambda x, dim: x.shape[dim],
    "et_vk.select_as_symint.default": _element,
    **{
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "floordiv", "lt", "gt", "ge", "le", "eq")
    },
}
HOST_OPERATORS: dict[str, HostOperator] = {
    **{f"aten.{name}": run for name, run in _ATEN.items()}, **dict.fromkeys(_COPIES, _SAME), **_NUMBERS
}  # fmt: skip
