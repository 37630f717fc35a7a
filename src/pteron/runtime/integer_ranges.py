"""Checks before a call that no integer exceeds 32 bits: the GPU computes with 32 bits, PyTorch with 64.

In: a delegate's graph and the ranges of its integer inputs. The check computes the range of each node's
result from its operands, and raises an error at the first node that may exceed 32 bits. A range covers a
whole tensor, and an unknown operator gets the full 32-bit range, so the check may reject a call that would
not overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TypeAlias

from pteron.dtypes import DType
from pteron.errors import DtypeError
from pteron.graph import Graph, Node, Tensor
from pteron.graph.values import Value, ValueList
from pteron.host.tensors import extremes

Range: TypeAlias = tuple[int, int]  # minimum and maximum
WORD: Range = (-(1 << 31), (1 << 31) - 1)
_INTEGERS = (DType.U8, DType.I8, DType.I16, DType.I32, DType.I64)
# Operators that only move elements: their results have the range of their operands.
_MOVE_NAMES = (
    "_clone_dim_order _to_copy _to_dim_order_copy alias_copy amax amin cat clamp clone constant_pad_nd copy "
    "embedding expand expand_copy flip full_like gather index_select max maximum min minimum permute "
    "permute_copy prepack relu repeat select select_copy slice slice_copy split_with_sizes_copy squeeze "
    "squeeze_copy stack t_copy transpose transpose_copy unsqueeze unsqueeze_copy view view_copy where"
)
_MOVES = frozenset(_MOVE_NAMES.split())
_MADE_OF_NUMBERS = frozenset({"clamp", "constant_pad_nd", "full_like"})


def check_ranges(graph: Graph, given: Mapping[int, Range]) -> None:
    """Raise a DtypeError for the first node whose result may exceed 32 bits; `given` has inputs by id."""
    ranges = dict(given)
    for node in graph.nodes:
        outputs = [tensor for tensor in _tensors(node.args[-1:]) if tensor.dtype in _INTEGERS]
        if not outputs:
            continue
        low, high = _range(node, ranges)
        if low < WORD[0] or high > WORD[1]:
            raise DtypeError(
                f"{graph.name}, {node}: integers from {low} to {high} are possible; a GPU computes in 32 bits"
            )
        ranges |= {tensor.id: (low, high) for tensor in outputs}


def _range(node: Node, ranges: dict[int, Range]) -> Range:
    base = node.name.split(".")[1] if "." in node.name else node.name
    operands = [_of(value, ranges) for value in node.args[:-1] if isinstance(value, (Tensor, int))]
    if base in ("add", "sub") and len(operands) in (2, 3):
        (a, b), alpha = operands[:2], operands[2] if len(operands) == 3 else (1, 1)
        scaled = _product(b, alpha)
        return _sum(a, scaled if base == "add" else _product(scaled, (-1, -1)))
    if base == "mul" and len(operands) == 2:
        return _product(*operands)
    if base == "neg":
        return _product(operands[0], (-1, -1))
    if base in ("sum", "cumsum"):
        (source,) = (value for value in node.args[:1] if isinstance(value, Tensor))
        return _join([(0, 0), _product(operands[0], (1, max(1, prod(source.shape_max))))])
    if base in ("argmax", "argmin"):
        return 0, prod(next(_tensors(node.args)).shape_max)
    if base in _MOVES:
        members = [tensor for tensor in _tensors(node.args[:-1]) if tensor.dtype in (*_INTEGERS, DType.BOOL)]
        numbers = [value for value in node.args[:-1] if isinstance(value, int) and base in _MADE_OF_NUMBERS]
        return _join([*(_of(tensor, ranges) for tensor in members), *((n, n) for n in numbers)])
    return WORD


def _of(value: Tensor | int, ranges: dict[int, Range]) -> Range:
    """The range of an operand. The range of a constant is computed once."""
    if isinstance(value, int):
        return value, value
    if value.dtype is DType.BOOL:
        return 0, 1
    if value.id not in ranges:
        constant = value.constant
        array = constant.numpy() if constant is not None and constant.dtype in _INTEGERS else None
        ranges[value.id] = WORD if array is None or not array.size else extremes(array)
    return ranges[value.id]


def _tensors(values: tuple[Value, ...]) -> Iterator[Tensor]:
    for value in values:
        for item in value.items if isinstance(value, ValueList) else (value,):
            if isinstance(item, Tensor):
                yield item


def _join(ranges: list[Range]) -> Range:
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else WORD


def _sum(a: Range, b: Range) -> Range:
    return a[0] + b[0], a[1] + b[1]


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)
