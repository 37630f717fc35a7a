"""Every operator that exporters mark resizable, at three live shapes below its maximum, in every type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from arguments import Symbol, TensorArgument, leaves
from check import check_op, each
from live_case import Case
from live_cases import CASES
from operator_table import read_table
from small_graphs import open_session

import pteron
from pteron import Device
from pteron.dtypes import DType
from pteron.graph import Constant, SymInt, Tensor
from pteron.host.tensors import HostResult
from pteron.ops import OPERATORS
from pteron.runtime.outputs import Wanted

ROWS = read_table()
RESIZABLE = [name for name, row in ROWS.items() if row["resizable"] == "yes" and name in OPERATORS]
NUMBERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "lt": lambda a, b: a < b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
}
SIZE, ELEMENT, PREPACK = "sym_size.int", "et_vk.select_as_symint.default", "et_vk.prepack.default"
UPDATE = "update_cache.default"
ALONE = {*NUMBERS, SIZE, ELEMENT, PREPACK, UPDATE}  # those that the tests below run apart
EVERY = ("bool", "f16", "f32", "f64", "i32", "i64", "i8", "u8")
COUNTS = (7, 3, 1, 5)


def dtypes(name: str, case: Case) -> tuple[str, ...]:
    """The types to run an operator in: those of its first input, or of its output where it has none."""
    column = (
        "inputs" if any(isinstance(leaf, TensorArgument) for leaf in leaves(case.arguments)) else "outputs"
    )
    return (*(case.dtypes or ROWS[name][column].split(";")[0].split("/")), *case.more)


def runs(name: str) -> Iterator[tuple[str, bool]]:
    """Every type; an operator that suits itself to the device runs on both kinds of it, once."""
    types = dtypes(name, CASES[name])
    yield from ((dtype, True) for dtype in types)
    if OPERATORS[name].takes_target:
        yield "f32" if "f32" in types else types[0], False


def test_every_resizable_operator_has_a_case() -> None:
    assert set(RESIZABLE) == set(CASES) | ALONE
    assert not set(CASES) & ALONE


@each("name", CASES)
def test_a_case_has_three_shapes_below_its_maximum(name: str) -> None:
    case = CASES[name]
    named = {
        size for leaf in leaves(case.arguments) if isinstance(leaf, TensorArgument) for size in leaf.shape
    }
    symbols = {leaf.name for leaf in leaves(case.arguments) if isinstance(leaf, Symbol)}
    live = case.again()["live"]
    values = [live[size] for size in (*named, *symbols) if isinstance(size, str)]
    assert any(len({value for value in of_one if value < max(of_one)}) >= 3 for of_one in values)


@pytest.mark.long(every=7)
@pytest.mark.parametrize("name", [name for name in CASES if name in OPERATORS])
def test_live_shapes(name: str, device: Device) -> None:
    @each(("dtype", "is_cpu"), runs(name))
    def check(dtype: str, is_cpu: bool) -> None:
        options = CASES[name].again()
        if dtype in ("i8", "u8", "f64"):
            options = {"out": dtype, "tolerance": 1e-5, **options}
        if dtype == "f32":
            options["tolerance"] = min(options.get("tolerance", 1e-5), 1e-4)
        target = replace(device.target, is_cpu=is_cpu)
        check_op(name, *CASES[name].arguments, dtype=dtype, target=target, **options)

    check()


# Live integers and constants --------------------------------------------------------------------

A, B, OUT = SymInt(0), SymInt(1), SymInt(2)


@each("name", NUMBERS)
def test_live_integers(name: str) -> None:
    both = open_session((name, A, B, OUT), inputs=(A, B), outputs=(OUT,))
    first = open_session((name, A, -3, OUT), inputs=(A,), outputs=(OUT,))
    second = open_session((name, 7, B, OUT), inputs=(B,), outputs=(OUT,))
    for a, b in [(7, 2), (2, 7), (-7, 2), (7, -2), (-7, -2), (3, 3), (2, 2), (0, 5), (-3, 7), (100, 1)]:
        assert both.run([a, b], [None]) == [NUMBERS[name](a, b)]
        assert first.run([a], [None]) == [NUMBERS[name](a, -3)]
        assert second.run([b], [None]) == [NUMBERS[name](7, b)]
    assert both.counters.plans <= 3  # of a comparison: below, at and above equality


@each("dtype", EVERY)
def test_a_live_size(dtype: str) -> None:
    x = Tensor(3, DType(dtype), (2, 7))
    session = open_session((SIZE, x, -1, A), inputs=(x,), outputs=(A,))
    for count in COUNTS:
        assert session.run([np.zeros((2, count), x.dtype.numpy)], [None]) == [count]


@each("dtype", ["i64", "i32", "i8", "u8", "bool"])
def test_an_element_of_a_live_input(dtype: str) -> None:
    x = Tensor(3, DType(dtype), (7,))
    session = open_session((ELEMENT, x, 0, -1, A), inputs=(x,), outputs=(A,))
    for count in COUNTS:
        values = np.arange(count).astype(x.dtype.numpy)
        assert session.run([values], [None]) == [values[-1]]


def test_indices_of_a_live_dim() -> None:
    """The range of indices is that of the call, not that of an earlier one."""
    x, indices, out = Tensor(3, DType.F32, (9, 2)), Tensor(4, DType.I64, (1,)), Tensor(5, DType.F32, (1, 2))
    session = open_session(
        ("aten.index_select.default", x, 0, indices, out), inputs=(x, indices), outputs=(out,)
    )
    for count in (4, 6, 3):
        values = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
        (result,) = session.run([values, np.array([count - 1])], [Wanted(DType.F32, on_gpu=False)])
        assert isinstance(result, HostResult)
        np.testing.assert_array_equal(result.numpy(), values[-1:])
        with pytest.raises(pteron.InputError, match=f"index {count} .* is outside 0 to {count - 1}"):
            session.run([values, np.array([count])], [Wanted(DType.F32, on_gpu=False)])


@each("dtype", EVERY)
def test_live_rows_of_a_constant(dtype: str) -> None:
    kind = DType(dtype)
    values = np.arange(14).reshape(7, 2).astype(kind.numpy)
    constant = Tensor(3, kind, (7, 2), Constant("constant", kind, (7, 2), memoryview(values.tobytes())))
    packed, out = Tensor(4, kind, (7, 2)), Tensor(5, kind, (7, 2))
    session = open_session(
        (PREPACK, constant, packed),
        ("aten.slice_copy.Tensor", packed, 0, 0, A, 1, out),
        inputs=(A,),
        outputs=(out,),
    )
    for count in COUNTS:
        (result,) = session.run([count], [Wanted(kind, on_gpu=False)])
        assert isinstance(result, HostResult)
        np.testing.assert_array_equal(result.numpy(), values[:count])


@each("dtype", ["f16", "f32"])
def test_live_rows_of_a_cache(dtype: str) -> None:
    kind = DType(dtype)
    rows = np.arange(7 * 6).reshape(1, 7, 2, 3).astype(kind.numpy)
    cache = Tensor(3, kind, rows.shape, Constant("cache", kind, rows.shape, memoryview(rows.tobytes())))
    value, done, out = Tensor(4, kind, rows.shape), Tensor(5, kind, (1,)), Tensor(6, kind, rows.shape)
    session = open_session(
        (UPDATE, value, cache, A, done),
        ("aten.neg.default", cache, out),
        inputs=(value, A),
        outputs=(out,),
    )
    for count in COUNTS:
        fresh = np.full((1, count, 2, 3), 100 + count, kind.numpy)
        rows[:, 7 - count :] = fresh
        (result,) = session.run([fresh, 7 - count], [Wanted(kind, on_gpu=False)])
        assert isinstance(result, HostResult)
        np.testing.assert_array_equal(result.numpy(), -rows)
