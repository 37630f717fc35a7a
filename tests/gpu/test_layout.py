"""Operators that move elements: every name, every storage, live starts, shapes without elements."""

from __future__ import annotations

from typing import Any

import torch
from arguments import Symbol, tensor, weight
from check import EVERY_DTYPE, NOTHING, check_op, each, every_dtype, refuse_op

Shape = tuple[int | str, ...]
TO_END = 2**63 - 1


def _as(dtype: str) -> torch.dtype:
    kinds = {
        "f32": torch.float64,
        "f16": torch.float64,
        "i32": torch.int64,
        "i64": torch.int64,
        "bool": torch.bool,
    }
    return kinds[dtype]


# Views ------------------------------------------------------------------------------------------
# test_live_shapes.py runs every operator in every type at one live shape.


@each(
    ("shape", "size"),
    [
        ((2, "S", 3), [-1]),
        ((), [1, 1]),
        ((1, 1), []),
        ((2, 3), [3, 2, 1, 1]),
        (("S", 4), [2, -1]),
        ((0, 3), [3, 0]),
    ],
)
def test_view_shapes(shape: Shape, size: list[int]) -> None:
    check_op("aten.view_copy.default", tensor(*shape), size)


def test_view_by_live_sizes() -> None:
    check_op("aten.view_copy.default", tensor("S", 6), [2, Symbol("S"), 3], live={"S": (4, 1, 7)})


def test_squeeze_and_unsqueeze() -> None:
    check_op("aten.unsqueeze_copy.default", tensor("S", 3), -1)
    check_op("aten.unsqueeze_copy.default", tensor("S", 3), 0)
    check_op("aten.squeeze_copy.dims", tensor(), [0])
    # A dim that is one only now stays.
    check_op("aten.squeeze_copy.dims", tensor("S", 1), [0, 1], oracle=lambda x, dim: x.reshape(-1))
    # A dim that is one at most and nothing at this call would be more elements than there are.
    refuse_op("aten.squeeze_copy.dims", tensor("S", 5), [0], live={"S": (1, 0)}, match="of one element")


def _clone(x: Any, *_: Any) -> Any:
    return x.clone()


@each("name", ["aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default"])
@each("source", EVERY_DTYPE)
@each("result", EVERY_DTYPE)
def test_conversions(name: str, source: str, result: str) -> None:
    check_op(
        name,
        tensor("S", 5, dtype=source),
        *[None] * 6,
        oracle=lambda x, *_: x.to(_as(result)),
        dtype=source,
        out=result,
    )


def test_conversions_of_edges() -> None:
    """Fractions are dropped towards zero; what is not zero is true."""
    arguments = (tensor(values=(-2.75, -0.5, 0.5, 2.75)), *[None] * 6)
    check_op("aten._to_copy.default", *arguments, oracle=lambda x, *_: x.to(torch.int64), out="i32")
    check_op("aten._to_copy.default", *arguments, oracle=lambda x, *_: x != 0, out="bool")
    arguments = (tensor(values=(0, 1, 2, 255), dtype="u8"), *[None] * 6)
    check_op("aten._to_copy.default", *arguments, oracle=lambda x, *_: x != 0)


@every_dtype
def test_prepack(dtype: str) -> None:
    check_op("et_vk.prepack.default", weight(5, 3), oracle=_clone, dtype=dtype)


# Rearrangements ---------------------------------------------------------------------------------


@each("dims", [[4, 0, 3, 1, 2], [-1, -2, -3, -4, -5], [0, 1, 2, 3, 4], [1, 0, 2, 4, 3]])
def test_permute_of_rank_five(dims: list[int]) -> None:
    check_op("aten.permute_copy.default", tensor(2, "S", 3, "T", 2), dims)


def test_permute_of_few_dims() -> None:
    check_op("aten.permute.default", tensor("S", 2, "T"), [2, 0, 1])
    check_op("aten.permute_copy.default", tensor(), [])
    check_op("aten.permute_copy.default", tensor("S", 0), [1, 0])


@every_dtype
def test_transpose(dtype: str) -> None:
    check_op("aten.t_copy.default", tensor("S", 5), dtype=dtype)
    check_op("aten.t_copy.default", tensor(5), dtype=dtype)


@every_dtype
@each("dims", [[0], [-1], [0, 2], [0, 1, 2], []])
def test_flip(dims: list[int], dtype: str) -> None:
    check_op("aten.flip.default", tensor("S", 2, "T"), dims, dtype=dtype)


@every_dtype
def test_expand(dtype: str) -> None:
    check_op("aten.expand_copy.default", tensor("S", 1, 3), [2, -1, 4, -1], False, dtype=dtype)


@each(("shape", "size"), [((), [3, 2]), ((1,), [5]), ((1, 3), [0, 3]), ((2, 1), [-1, -1])])
def test_expand_shapes(shape: Shape, size: list[int]) -> None:
    check_op("aten.expand_copy.default", tensor(*shape), size, False)
    check_op("aten.expand_copy.default", tensor(1, 3), [Symbol("S"), -1], False)


@every_dtype
@each("repeats", [[2, 3], [1, 1], [2, 1, 3], [3, 1, 2, 2], [0, 2]])
def test_repeat(repeats: list[int], dtype: str) -> None:
    check_op("aten.repeat.default", tensor("S", 3), repeats, dtype=dtype)


def test_repeat_of_a_scalar_and_of_four_dims() -> None:
    check_op("aten.repeat.default", tensor(), [3])
    check_op("aten.repeat.default", tensor(2, 3, "S", 2), [2, 3, 2, 2])


@each(("dimension", "size", "step"), [(0, 1, 1), (1, 3, 2), (-1, 2, 1), (1, 5, 3), (-2, 0, 1)])
@each("dtype", ["f32", "f16"])
def test_unfold(dimension: int, size: int, step: int, dtype: str) -> None:
    check_op("aten.unfold_copy.default", tensor("S", 7, 3), dimension, size, step, dtype=dtype)


def test_unfold_of_a_live_dim_and_of_a_scalar() -> None:
    check_op("aten.unfold_copy.default", tensor("S", 3), 0, 2, 3, live={"S": (2, 11, 5, 7)})
    check_op("aten.unfold_copy.default", tensor(), 0, 1, 1)
    check_op("aten.unfold_copy.default", tensor(), -1, 0, 2)


# Slices -----------------------------------------------------------------------------------------


@every_dtype
@each(
    ("dim", "start", "end", "step"),
    [(1, 1, 4, 1), (-1, 0, TO_END, 2), (1, -3, -1, 1), (1, None, None, 3), (0, 0, 1, 1), (1, 4, 2, 1)],
)
def test_slice(dim: int, start: int | None, end: int | None, step: int, dtype: str) -> None:
    check_op("aten.slice_copy.Tensor", tensor("S", 5, 3), dim, start, end, step, dtype=dtype)


@each(("start", "end"), [(0, TO_END), (-2, TO_END), (-100, 3), (1, 100), (3, 3)])
def test_slice_of_a_live_dim(start: int, end: int) -> None:
    check_op("aten.slice_copy.Tensor", tensor("S", 3), 0, start, end, 1)


def test_slice_from_a_live_start() -> None:
    check_op("aten.slice_copy.Tensor", weight(31, 3), 0, Symbol("p"), None, 1, live={"p": (0, 5, 30, -2, 31)})


@every_dtype
@each("index", [0, 4, -1, -5])
def test_select(index: int, dtype: str) -> None:
    check_op("aten.select_copy.int", tensor("S", 5, 3), 1, index, dtype=dtype)
    check_op("aten.select_copy.int", tensor("S", 5, 3), -2, index, dtype=dtype)


def test_select_of_a_live_dim() -> None:
    check_op("aten.select_copy.int", tensor("S", 3), 0, -1)
    check_op("aten.select_copy.int", tensor("S"), 0, 0)


def test_select_at_a_live_index_takes_one_plan_per_sign() -> None:
    arguments = (tensor(11, 3), 0, Symbol("p"))
    check_op("aten.select_copy.int", *arguments, live={"p": (0, 10, 3, 7)}, plans=0)
    check_op("aten.select_copy.int", *arguments, live={"p": (-1, 10, -11, 7)}, plans=1)


# Joining and parting ----------------------------------------------------------------------------


@each("dtype", ["f32", "f16", "i32", "i64", "bool"])
@each("count", [1, 2, 3, 5])
def test_cat(count: int, dtype: str) -> None:
    parts = [tensor("S", size, 2) for size in range(1, count + 1)]
    check_op("aten.cat.default", parts, 1, dtype=dtype)
    check_op("aten.cat.default", parts, -2, dtype=dtype)


def test_cat_along_a_live_dim() -> None:
    check_op("aten.cat.default", [tensor("S", 3), weight(2, 3), tensor("T", 3)], 0)
    check_op("aten.cat.default", [tensor("S"), tensor("T")], -1)


def test_cat_of_tensors_without_elements() -> None:
    check_op("aten.cat.default", [tensor("S", 3), tensor("T", 3)], 0, live=NOTHING)
    check_op("aten.cat.default", [tensor(0), tensor("S", 3), tensor(0)], 1)
    check_op("aten.cat.default", [tensor(0), tensor(0)], 0)


def test_cat_of_one_tensor_twice_and_of_two_types() -> None:
    twice = tensor("S", 3)
    check_op("aten.cat.default", [twice, twice], 1)
    check_op("aten.cat.default", [tensor("S", 3, dtype="i32"), tensor("S", 2, dtype="f32")], 1)


@every_dtype
@each(("sizes", "dim"), [([2, 3], 1), ([5], 1), ([1, 0, 4], -2), ([1, 1, 1, 1, 1], 1)])
def test_split(sizes: list[int], dim: int, dtype: str) -> None:
    check_op("aten.split_with_sizes_copy.default", tensor("S", 5, 3), sizes, dim, dtype=dtype)


# Nothing ----------------------------------------------------------------------------------------


def test_live_dims_of_no_elements() -> None:
    x = tensor("S", 3, "T")
    check_op("aten.view_copy.default", tensor("S", 3), [-1], live=NOTHING)
    check_op("aten.permute_copy.default", x, [2, 0, 1], live=NOTHING)
    check_op("aten.slice_copy.Tensor", x, 0, 1, TO_END, 1, live=NOTHING)
    check_op("aten.flip.default", x, [0, 2], live=NOTHING)
    check_op("aten.repeat.default", x, [2, 1, 3], live=NOTHING)
    check_op("aten.expand_copy.default", tensor("S", 1), [-1, 4], False, live=NOTHING)


# Refusals ---------------------------------------------------------------------------------------


def test_refusals() -> None:
    x = tensor(3, 5)
    refuse_op("aten.view_copy.default", x, [4, 4], match=r"view as \[4, 4\].*\[3, 5\]")
    refuse_op(
        "aten.view_copy.default", x, [-1, 4], match=r"leave a whole number for the one -1; got .*\[3, 5\]"
    )
    refuse_op("aten.permute_copy.default", x, [0, 0], match=r"\[0, 0\] must be a permutation; got .*\[3, 5\]")
    refuse_op("aten.slice_copy.Tensor", x, 2, 0, 1, 1, match="dim 2 is out of range for rank 2")
    refuse_op("aten.slice_copy.Tensor", x, 0, 0, 1, 0, match="slice step must be positive, got 0")
    refuse_op("aten.select_copy.int", x, 0, 3, match=r"dim 0 at 3: there are 3 places; got .*\[3, 5\]")
    refuse_op("aten.select_copy.int", tensor(), 0, 0, match="dim 0")
    refuse_op(
        "aten.expand_copy.default", x, [2, 5], False, match=r"expand to \[2, 5\]: only dims of size 1 grow"
    )
    refuse_op("aten.repeat.default", x, [2], match=r"each dim of x takes a number; got .*\[3, 5\]")
    refuse_op("aten.unfold_copy.default", x, 1, 6, 1, match="windows of 6 by steps of 1: a window must fit")
    refuse_op("aten.cat.default", [x, tensor(4, 4)], 0, match=r"all other dims must be equal; got .*\[4, 4\]")
    split = (x, [1, 1], 0)
    refuse_op("aten.split_with_sizes_copy.default", *split, out=((1, 5),) * 2, match="must add up to 3")
    refuse_op("aten.t_copy.default", tensor(2, 3, 4), out=((4, 3, 2),), match=r"two dims; got .*\[2, 3, 4\]")
    refuse_op("aten.expand_copy.default", x, [5], False, match="no dim of x may be left out")
    refuse_op("aten.flip.default", x, [0, -2], out=((3, 5),), match="name one dim twice")
    refuse_op("aten.unfold_copy.default", tensor(), 0, 2, 1, match="a window must fit")
    arguments = (tensor(5, 3), 0, Symbol("p"))
    refuse_op("aten.select_copy.int", *arguments, live={"p": (0, 5)}, out=((3,),), match="select of dim 0")
