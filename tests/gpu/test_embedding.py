"""Operators that pick by index: whole slices and single elements, and indices out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from arguments import tensor, weight
from check import NOTHING, check_op, each, each_float, every_dtype, refuse_op
from plane_cases import embedding

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.gpu import Device
from pteron.graph import Constant, Graph, Node, Tensor
from pteron.runtime import staging
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session

EMBEDDING, SELECT, INDEX, GATHER = (
    f"aten.{name}" for name in ("embedding.default", "index_select.default", "index.Tensor", "gather.default")
)
EMBEDDING_Q4 = "et_vk.embedding_q4gsw.default"


@pytest.fixture
def only_the_gpu_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the host's range check, as if an earlier operator had computed these indices on the GPU."""
    monkeypatch.setattr(staging, "_check_range", lambda *_: None)


unseen = pytest.mark.usefixtures("only_the_gpu_sees")


@each_float
@each("index_dtype", ["i32", "i64"])
@each("shape", [("S",), (2, "S"), (), (2, "S", 3), (0,)])
def test_embedding(shape: tuple[int | str, ...], index_dtype: str, dtype: str) -> None:
    indices = tensor(*shape, dtype=index_dtype, low=0, high=12)
    check_op(EMBEDDING, weight(13, 5), indices, -1, False, False, oracle=embedding, dtype=dtype)


BEYOND = (-1, 0, -13, -14, 12, 13, 2**31 - 1, -(2**31))


@unseen
def test_embedding_of_indices_out_of_range() -> None:
    check_op(EMBEDDING, weight(13, 5), tensor(values=BEYOND, dtype="i64"), -1, False, False, oracle=embedding)


@unseen
def test_quantized_embedding_of_indices_out_of_range() -> None:
    """The same rows as from a table of floats: weights of 4 bits that are all 1, at a scale of 1."""

    def oracle(weights: Any, scales: Any, group: int, indices: Any, linear: bool) -> Any:
        return embedding(torch.ones(13, 32, dtype=torch.float64), indices)

    table = weight(values=np.full((13, 16), 0x99), dtype="u8")
    indices = tensor(values=BEYOND, dtype="i64")
    check_op(EMBEDDING_Q4, table, weight(values=np.ones((13, 1))), 32, indices, True, oracle=oracle)


def test_no_indices() -> None:
    indices = tensor("S", dtype="i64", low=0, high=12)
    check_op(EMBEDDING, weight(13, 5), indices, -1, False, False, oracle=embedding, live=NOTHING)
    check_op(SELECT, tensor(13, 5), 0, indices, live=NOTHING)


def test_embedding_in_a_table_from_the_call() -> None:
    indices = tensor("S", dtype="i64", low=0, high=0)
    check_op(EMBEDDING, tensor("T", 5), indices, -1, False, False, oracle=embedding)


@every_dtype
@each("dim", [0, 1, -1])
def test_index_select(dim: int, dtype: str) -> None:
    check_op(SELECT, tensor(4, "S", 3), dim, tensor("T", dtype="i64", low=0, high=0), dtype=dtype)
    check_op(SELECT, tensor(4, 5, 4), dim, tensor("T", dtype="i32", low=0, high=3), dtype=dtype)


@unseen
def test_integers_out_of_range_are_zero() -> None:
    def oracle(x: Any, dim: int, index: Any) -> Any:
        return torch.tensor([0, 0, 5])

    check_op(
        SELECT,
        tensor(values=(5, 6, 7)),
        0,
        tensor(values=(-1, 3, 0), dtype="i32"),
        oracle=oracle,
        dtype="i32",
    )


@each("dtype", ["f32", "f16", "i32", "i64"])
@each("dim", [0, 1, 2])
def test_index(dim: int, dtype: str) -> None:
    indices = [None] * dim + [tensor("S", dtype="i64", low=-4, high=3)]
    check_op(INDEX, tensor(4, 5, "T", 4) if dim < 2 else tensor("T", 5, 4), indices, dtype=dtype)


@unseen
def test_index_counts_from_the_end() -> None:
    def oracle(x: Any, indices: Any) -> Any:
        return torch.tensor([7.0, torch.nan, 5.0, torch.nan, 5.0], dtype=torch.float64)

    indices = tensor(values=(-1, 3, 0, -4, -3), dtype="i64")
    check_op(INDEX, tensor(values=(5.0, 6.0, 7.0)), [indices], oracle=oracle)


def test_index_select_of_a_scalar() -> None:
    check_op(SELECT, tensor(), 0, tensor(1, dtype="i64", low=0, high=0))
    check_op(SELECT, tensor(), -1, tensor(dtype="i64", low=0, high=0))
    refuse_op(SELECT, tensor(), 0, tensor(2, dtype="i64", low=0, high=0), match="picked from once")


@unseen
def test_index_select_out_of_range() -> None:
    def oracle(x: Any, dim: int, index: Any) -> Any:
        return torch.tensor([torch.nan, 7.0, torch.nan], dtype=torch.float64)

    check_op(SELECT, tensor(values=(5.0, 7.0)), 0, tensor(values=(-1, 1, 2), dtype="i64"), oracle=oracle)


def test_index_by_several_dims_at_once() -> None:
    check_op(INDEX, tensor(4, 5, 3), [None, tensor(2, "S", dtype="i64", low=-5, high=4)])


@every_dtype
@each("dim", [0, 1, -1])
def test_gather(dim: int, dtype: str) -> None:
    index = tensor(2, "S", 3, dtype="i64", low=0, high=1)
    check_op(GATHER, tensor(2, 11, 3), dim, index, False, dtype=dtype)


@each(("x", "index", "dim"), [((), (), 0), ((5,), (9,), 0), ((3, 0), (0, 0), 1), ((2, 3), (2, 7), 1)])
def test_gather_shapes(x: tuple[int, ...], index: tuple[int, ...], dim: int) -> None:
    check_op(GATHER, tensor(*x), dim, tensor(*index, dtype="i64", low=0, high=0), False)


def test_gather_within_live_rows() -> None:
    check_op(GATHER, tensor("S", 13), 1, tensor("S", "T", dtype="i32", low=0, high=12), False)


@unseen
def test_gather_out_of_range() -> None:
    def oracle(x: Any, dim: int, index: Any, sparse: bool) -> Any:
        return torch.tensor([[torch.nan, torch.nan, 1.0], [torch.nan, 5.0, 6.0]], dtype=torch.float64)

    index = tensor(values=[[-1, 3, 0], [-4, 1, 2]], dtype="i64")
    check_op(GATHER, tensor(values=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), 1, index, False, oracle=oracle)


def test_refusals() -> None:
    x, index = tensor(3, 5), tensor(2, dtype="i64")
    refuse_op(EMBEDDING, tensor(3), index, -1, False, False, match=r"weight must be a matrix; got .*\[3\]")
    refuse_op(SELECT, x, 2, index, match="dim 2 is out of range for rank 2")
    refuse_op(SELECT, x, 0, tensor(2, 2, dtype="i64"), match=r"one dim; got .*\[2, 2\]")
    refuse_op(INDEX, x, [tensor(3, dtype="bool")], match="by booleans")
    refuse_op(GATHER, x, 0, index, False, match=r"within x except in dim 0; got .*\[3, 5\], .*\[2\]")
    refuse_op(GATHER, x, 0, tensor(2, 6, dtype="i64"), False, out=((2, 6),), match="within x except in dim 0")


# What the host sees -----------------------------------------------------------------------------


@each("wrong", [-1, 5, 1 << 30])
def test_an_input_out_of_range_is_refused(wrong: int) -> None:
    """Not even a view or a conversion in between hides it."""
    indices, narrowed = Tensor(0, DType.I64, (3,)), Tensor(1, DType.I32, (3,))
    out = Tensor(2, DType.F32, (3, 2))
    table = Tensor(3, DType.F32, (5, 2), Constant("table", DType.F32, (5, 2), memoryview(bytes(40))))
    nodes = (
        Node(0, "aten._to_copy.default", (indices, *[None] * 6, narrowed)),
        Node(1, "aten.embedding.default", (table, narrowed, -1, False, False, out)),
    )
    delegate = Delegate(Session.of(Graph("table", nodes, (indices,), (out,)), Device.open()))
    wanted = [Wanted(DType.F32, on_gpu=False)]
    assert delegate.run([np.array([0, 4, 2])], wanted)
    with pytest.raises(InputError, match=rf"input 0: index {wrong} of aten\.embedding.* is outside 0 to 4"):
        delegate.run([np.array([0, wrong, 2])], wanted)


def test_a_constant_out_of_range_is_refused() -> None:
    indices = weight(values=[0, 5], dtype="i64")
    arguments = weight(5, 2), indices, -1, False, False
    refuse_op(EMBEDDING, *arguments, match="index 5 is outside 0 to 4", out=((2, 2),))
