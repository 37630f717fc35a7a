"""Tensors of up to eight dims that cannot be merged with each other; some are live or empty."""

from __future__ import annotations

import pytest
from arguments import Argument, tensor
from check import check_op, each

Shape = tuple[int | str, ...]

EIGHT: Shape = (2, "S", 1, 3, 2, "T", 2, 3)
LIVE = {"S": (3, 1, 2, 0), "T": (2, 3, 0, 1)}
BACKWARDS = list(range(7, -1, -1))
ALTERNATING: Shape = (1, "S", 1, 3, 1, "T", 1, 3)  # and its complement, so that no two dims walk as one
COMPLEMENT: Shape = (2, 1, 5, 1, 2, 1, 2, 1)
TO_END = 2**63 - 1
PICKS = tensor(3, dtype="i64", low=0, high=1)

MOVES: list[tuple[str, tuple[Argument, ...]]] = [
    ("permute_copy.default", (BACKWARDS,)),
    ("permute_copy.default", ([1, 0, 3, 2, 5, 4, 7, 6],)),
    ("flip.default", ([1, 3, 5, 7],)),
    ("flip.default", (BACKWARDS,)),
    ("repeat.default", ([2, 1, 3, 2, 1, 2, 2, 3],)),
    ("repeat.default", ([2, 2, 2, 2, 2, 2, 2, 2],)),
    ("unfold_copy.default", (3, 2, 1)),
    ("unfold_copy.default", (-8, 1, 1)),
    ("slice_copy.Tensor", (-1, 1, TO_END, 2)),
    ("select_copy.int", (4, -1)),
    ("split_with_sizes_copy.default", ([1, 2], 3)),
    ("view_copy.default", ([2, 18, -1],)),
    ("unsqueeze_copy.default", (3,)),
    ("squeeze_copy.dims", ([2],)),
    ("constant_pad_nd.default", ([-1, 2, 0, 1, 1, 2, 1, 0, 0, 1, 2, 0, 1, 1, 0, 3], 2)),
    ("index_select.default", (4, PICKS)),
    ("index.Tensor", ([None, None, None, None, PICKS],)),
    ("clone.default", (None,)),
]


@pytest.mark.long(every=2)
@pytest.mark.parametrize(("name", "rest"), MOVES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("dtype", ["f32", "bool"])
def test_moves_of_eight_dims(name: str, rest: tuple[Argument, ...], dtype: str) -> None:
    # A -1 among sizes has no answer where another size is zero.
    live = {"S": (3, 1, 2), "T": (2, 3, 1)} if name.startswith("view") else LIVE
    check_op(f"aten.{name}", tensor(*EIGHT), *rest, dtype=dtype, live=live)


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_moves_of_bytes(dtype: str) -> None:
    x = tensor(2, "S", 3, dtype=dtype, low=0, high=99)
    for name, rest in (
        ("permute_copy.default", ([2, 0, 1],)),
        ("flip.default", ([0, 2],)),
        ("repeat.default", ([2, 1, 3],)),
        ("slice_copy.Tensor", (2, 1, TO_END, 1)),
        ("view_copy.default", ([-1],)),
        ("constant_pad_nd.default", ([1, 2], 3)),
        ("expand_copy.default", ([2, 2, -1, 3], False)),
    ):
        check_op(f"aten.{name}", x, *rest, dtype=dtype, out=dtype)
    check_op("aten.cat.default", [x, x], 1, dtype=dtype, out=dtype)


def test_expansions() -> None:
    check_op("aten.expand_copy.default", tensor(*ALTERNATING), [2, -1, 5, -1, 2, -1, 2, -1], False, live=LIVE)
    check_op("aten.expand_copy.default", tensor(3, 1), [2, 1, 2, 3, 1, 2, 3, 5], False)


def test_joins() -> None:
    parts = [tensor(*EIGHT), tensor(2, "S", 1, 5, 2, "T", 2, 3)]
    check_op("aten.cat.default", parts, 3, live=LIVE)
    check_op("aten.cat.default", parts, -5, live=LIVE)


def test_gather() -> None:
    index = tensor(1, "S", 1, 3, 4, "T", 2, 2, dtype="i64", low=0, high=1)
    check_op("aten.gather.default", tensor(*EIGHT), 4, index, False, live=LIVE)


@each("dtype", ["f32", "i32"])
def test_broadcasts(dtype: str) -> None:
    a, b = tensor(*ALTERNATING), tensor(*COMPLEMENT)
    check_op("aten.add.Tensor", a, b, 2, dtype=dtype, live=LIVE)
    check_op("aten.mul.Tensor", b, a, dtype=dtype, live=LIVE)
    check_op("aten.eq.Tensor", a, tensor(5, 1), dtype=dtype, live=LIVE)


def test_choices() -> None:
    condition = tensor(2, 1, 1, 3, 1, 1, 2, 1, dtype="bool")
    check_op("aten.where.self", condition, tensor(*ALTERNATING), tensor(*COMPLEMENT), live=LIVE)
    check_op("aten.where.self", tensor(dtype="bool"), tensor(*ALTERNATING), tensor(), live=LIVE)
