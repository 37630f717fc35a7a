"""Live integers that the host computes from inputs: each operator, chains of them, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sketch import Sketch

from pteron.dtypes import DType
from pteron.errors import GraphError, InputError, ShapeError
from pteron.families.symint.integers import HOST_OPERATORS
from pteron.graph import Constant, Tensor
from pteron.plan import Compiled
from pteron.runtime.staging import growth_per_step, live_values

ELEMENT = "et_vk.select_as_symint.default"
X, Y = np.array([[5, -7, 2], [0, 3, -4]]), np.array([[2, 2, -3], [1, 3, 3]])
TRUE = X > 0
# Of each operator: arguments after the name, and what PyTorch gives.
EACH: dict[str, tuple[tuple[Any, ...], Any]] = {
    "aten.add.Tensor": ((X, Y, 2), [[9, -3, -4], [2, 9, 2]]),
    "aten.sub.Tensor": ((X, Y, 3), [[-1, -13, 11], [-3, -6, -13]]),
    "aten.mul.Tensor": ((X, Y), [[10, -14, -6], [0, 9, -12]]),
    "aten.minimum.default": ((X, Y), [[2, -7, -3], [0, 3, -4]]),
    "aten.maximum.default": ((X, Y), [[5, 2, 2], [1, 3, 3]]),
    "aten.pow.Tensor_Tensor": ((Y, np.array(3)), [[8, 8, -27], [1, 27, 27]]),
    "aten.pow.Tensor_Scalar": ((X, 2.0), [[25, 49, 4], [0, 9, 16]]),
    "aten.remainder.Tensor": ((X, Y), [[1, 1, -1], [0, 0, 2]]),
    "aten.remainder.Scalar": ((X, 4), [[1, 1, 2], [0, 3, 0]]),
    "aten.bitwise_and.Tensor": ((X, Y), [[0, 0, 0], [0, 3, 0]]),
    "aten.bitwise_or.Tensor": ((X, Y), [[7, -5, -1], [1, 3, -1]]),
    "aten.bitwise_not.default": ((X,), [[-6, 6, -3], [-1, -4, 3]]),
    "aten.logical_and.default": ((TRUE, Y == 2), [[True, False, False], [False, False, False]]),
    "aten.logical_or.default": ((TRUE, Y == 2), [[True, True, True], [False, True, False]]),
    "aten.logical_not.default": ((TRUE,), [[False, True, False], [True, False, True]]),
    "aten.abs.default": ((X,), [[5, 7, 2], [0, 3, 4]]),
    "aten.neg.default": ((X,), [[-5, 7, -2], [0, -3, 4]]),
    "aten.relu.default": ((X,), [[5, 0, 2], [0, 3, 0]]),
    "aten.clamp.default": ((X, None, 3.0), [[3, -7, 2], [0, 3, -4]]),
    "aten.eq.Tensor": ((X, Y), [[False, False, False], [False, True, False]]),
    "aten.ge.Scalar": ((X, 2), [[True, False, True], [False, True, False]]),
    "aten.view_copy.default": ((X, (3, -1)), [[5, -7], [2, 0], [3, -4]]),
    "aten.permute_copy.default": ((X, (-1, 0)), [[5, 0], [-7, 3], [2, -4]]),
    "aten.t_copy.default": ((X,), [[5, 0], [-7, 3], [2, -4]]),
    "aten.squeeze_copy.dims": ((X[:1], (0, 1)), [5, -7, 2]),
    "aten.unsqueeze_copy.default": ((X[0], -1), [[5], [-7], [2]]),
    "aten.expand_copy.default": ((X[:1], (2, -1), False), [[5, -7, 2], [5, -7, 2]]),
    "aten.repeat.default": ((X[0], (2, 1)), [[5, -7, 2], [5, -7, 2]]),
    "aten.flip.default": ((X, (1,)), [[2, -7, 5], [-4, 3, 0]]),
    "aten.cat.default": (((X, Y), -1), [[5, -7, 2, 2, 2, -3], [0, 3, -4, 1, 3, 3]]),
    "aten.select_copy.int": ((X, -1, -3), [5, 0]),
    "aten.slice_copy.Tensor": ((X, -1, -2, (1 << 63) - 1, 1), [[-7, 2], [3, -4]]),
    "aten.split_with_sizes_copy.default": ((X, (1, 2), 1), [[[5], [0]], [[-7, 2], [3, -4]]]),
    "aten.constant_pad_nd.default": ((X, (1, -2, 0, 1), 9), [[9, 5], [9, 0], [9, 9]]),
    "aten.index.Tensor": ((X, (None, np.array([2, 0]))), [[2, 5], [-4, 0]]),
    "aten.index_select.default": ((X, 1, np.array([2, 0])), [[2, 5], [-4, 0]]),
    "aten.gather.default": ((X, 1, np.array([[2]])), [[2]]),
    "aten.full.default": (((2,), 7.0), [7, 7]),
    "aten.full_like.default": ((X[0], True), [1, 1, 1]),
    "aten.scalar_tensor.default": ((3.0,), 3),
    "aten.arange.start_step": ((7, 0, -3), [7, 4, 1]),
}


# Of operators above, with other options.
OTHERS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten.clamp.default", (X, -4, None), [[5, -4, 2], [0, 3, -4]]),
    ("aten.clamp.default", (X, None, None), X.tolist()),
    ("aten.squeeze_copy.dims", (X, (0, 1)), X.tolist()),
    ("aten.expand_copy.default", (X[0], (2, 3), False), [[5, -7, 2], [5, -7, 2]]),
    ("aten.slice_copy.Tensor", (X, 1, 2, None, 1), [[2], [-4]]),
    ("aten.slice_copy.Tensor", (X, 1, None, None, 2), [[5, 2], [0, -4]]),
    ("aten.split_with_sizes_copy.default", (X, (1, 1, 1), -1), [[[5], [0]], [[-7], [3]], [[2], [-4]]]),
    ("aten.constant_pad_nd.default", (X, (-1, 1), None), [[-7, 2, 0], [3, -4, 0]]),
    ("aten.gather.default", (X, -2, np.array([[1, 0]])), [[0, -7]]),
    ("aten.lt.Scalar", (X, 2), [[False, True, False], [True, False, True]]),
    ("aten.le.Tensor", (X, Y), [[False, True, False], [True, True, True]]),
    ("aten.ne.Scalar", (X, 2), [[True, True, False], [True, True, True]]),
    ("aten.arange.start_step", (1, 6, 2), [1, 3, 5]),
    ("aten.zeros.default", ((2,),), [0, 0]),
    ("aten.ones_like.default", (X[0],), [1, 1, 1]),
]


@pytest.mark.parametrize("name", EACH)
def test_an_operator(name: str) -> None:
    check(name, *EACH[name])


@pytest.mark.parametrize(("name", "arguments", "expected"), OTHERS, ids=[name for name, *_ in OTHERS])
def test_other_options(name: str, arguments: tuple[Any, ...], expected: Any) -> None:
    check(name, arguments, expected)


def check(name: str, arguments: tuple[Any, ...], expected: Any) -> None:
    found = HOST_OPERATORS[name](*arguments)
    pairs = zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]
    for one, wanted in pairs:
        assert one.tolist() == wanted
        assert one.dtype in (np.int64, np.bool_)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_a_quotient(mode: str) -> None:
    found = HOST_OPERATORS["aten.div.Tensor_mode"](X, Y, mode)
    rounded = np.floor(X / Y) if mode == "floor" else np.trunc(X / Y)
    np.testing.assert_array_equal(found, rounded)


class Positions:
    """A graph that reads a live integer from what it computes of `given`."""

    def __init__(self, *shape: int, dtype: DType = DType.I64) -> None:
        self.sketch = Sketch()
        self.given = self.sketch.tensor(*shape, dtype=dtype)

    def made(self, name: str, *arguments: Any, shape: tuple[int, ...], dtype: DType = DType.I32) -> Tensor:
        out = self.sketch.tensor(*shape, dtype=dtype)
        self.sketch.node(name, *arguments, out)
        return out

    def number(self, value: int) -> Tensor:
        constant = Constant(f"number {value}", DType.I64, (), memoryview(np.int64(value).tobytes()))
        return Tensor(self.sketch.tensor().id, DType.I64, (), constant)

    def read(self, tensor: Tensor, dim: int = 0, index: int = 0) -> Compiled:
        symbol = self.sketch.symbol()
        self.sketch.node(ELEMENT, tensor, dim, index, symbol)
        return self.sketch.prepare([self.given], [symbol])


def last_of_row(make: Positions) -> Compiled:
    return make.read(make.made("aten.select_copy.int", make.given, 0, 0, shape=(5,)), 0, -1)


def one_more(make: Positions) -> Compiled:
    more = make.made("aten.add.Tensor", make.given, make.number(1), 1, shape=(1, 5))
    return make.read(make.made("aten.view_copy.default", more, (-1,), shape=(5,)), 0, 1)


def as_byte(make: Positions) -> Compiled:
    """257 as u8 is 1."""
    cast = make.made("aten._to_copy.default", make.given, *[None] * 6, shape=(1, 5), dtype=DType.U8)
    return make.read(make.made("aten.select_copy.int", cast, 1, 2, shape=(1,), dtype=DType.U8))


def by_its_size(make: Positions) -> Compiled:
    """The element in the middle: the place depends on the live size."""
    size, half = make.sketch.symbol(), make.sketch.symbol()
    make.sketch.node("sym_size.int", make.given, 1, size)
    make.sketch.node("floordiv", size, 2, half)
    row = make.made("aten.slice_copy.Tensor", make.given, 1, half, (1 << 63) - 1, 1, shape=(1, 5))
    return make.read(row, 1)


@pytest.mark.parametrize(
    ("form", "found"),
    [(last_of_row, (99, 257)), (one_more, (5, 7)), (as_byte, (1, 1)), (by_its_size, (257, 6))],
)
def test_a_chain(form: Callable[[Positions], Compiled], found: tuple[int, int]) -> None:
    """At two sizes of the input; the GPU computes nothing of it."""
    compiled = form(Positions(1, 5))
    (source,) = compiled.executable.sources
    for row, expected in zip(([3, 4, 257, 0, 99], [5, 6, 257]), found, strict=True):
        values = live_values(compiled.executable, [np.array([row])])
        assert values == {source.symbol: expected}
        assert not compiled.plan(((1, len(row)),), values).launches


@pytest.mark.parametrize("read", ["input", "computed"])
def test_which_elements_there_are(read: str) -> None:
    """Of five in the last dim: from either end."""

    def sources(dim: int, index: int) -> int:
        make = Positions(1, 5)
        more = make.made("aten.add.Tensor", make.given, make.number(1), 1, shape=(1, 5))
        return len(make.read(make.given if read == "input" else more, dim, index).executable.sources)

    for dim, index in ((1, 0), (1, 4), (-1, -1), (-1, -5)):
        assert sources(dim, index) == 1
    for dim, index in ((2, 0), (-3, 0), (1, 5), (1, -6), (-2, 1)):
        with pytest.raises(GraphError, match=f"no element {index} along dim {dim}"):
            sources(dim, index)
    for dim in (0, -2):
        with pytest.raises(GraphError, match=f"several elements 0 along dim {dim}"):
            sources(dim, 0)


def test_what_the_gpu_needs_too_stays() -> None:
    make = Positions(1, 5)
    more = make.made("aten.add.Tensor", make.given, make.number(1), 1, shape=(1, 5))
    row = make.made("aten.view_copy.default", more, (-1,), shape=(5,))
    symbol = make.sketch.symbol()
    make.sketch.node(ELEMENT, row, 0, 0, symbol)
    compiled = make.sketch.prepare([make.given], [more, symbol])
    assert len(compiled.plan(((1, 5),), {symbol.id: 3}).launches) == 1


def test_a_loop_does_not_advance_what_the_host_computes() -> None:
    compiled = one_more(Positions(1, 5))
    assert growth_per_step(compiled.executable, [np.zeros((1, 5), np.int64)], {0: 1}) is None
    assert growth_per_step(compiled.executable, [np.zeros((1, 5), np.int64)], {}) == ({}, {})


def from_floats(make: Positions) -> Compiled:
    real = make.made("aten._to_copy.default", make.given, *[None] * 6, shape=(1, 5), dtype=DType.F32)
    back = make.made("aten._to_copy.default", real, *[None] * 6, shape=(1, 5))
    return make.read(make.made("aten.view_copy.default", back, (-1,), shape=(5,)))


def from_a_state(make: Positions) -> Compiled:
    state = make.sketch.constant(5, dtype=DType.I32)
    make.sketch.node("aten.add.Tensor", state, make.number(1), 1, state)
    return make.read(state)


def by_sorting(make: Positions) -> Compiled:
    ordered, places = make.sketch.tensor(5, dtype=DType.I32), make.sketch.tensor(5, dtype=DType.I64)
    flat = make.made("aten.view_copy.default", make.given, (-1,), shape=(5,))
    make.sketch.node("aten.sort.default", flat, 0, False, make.sketch.list(ordered, places))
    return make.read(ordered)


def by_many_nodes(make: Positions) -> Compiled:
    made = make.given
    for _ in range(101):
        made = make.made("aten.add.Tensor", made, make.number(1), 1, shape=(1, 5))
    return make.read(made, 1)


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (from_floats, r"depends on node 0 aten._to_copy.default\(.*\), and %1:f32\[1, 5\] is of floats"),
        (from_a_state, r"depends on node 1 .*, and %1:i32\[5\] is a state"),
        (by_sorting, r"depends on node 1 aten.sort.default\(.*, and the host has no such operator"),
        (by_many_nodes, "takes more than 100 operators"),
    ],
)
def test_what_the_host_cannot_compute(form: Callable[[Positions], Compiled], says: str) -> None:
    with pytest.raises(GraphError, match=f"{ELEMENT}.*{says}.*pass it as an integer input"):
        form(Positions(1, 5))


def test_calls_that_do_not_fit() -> None:
    compiled = one_more(Positions(1, 5))
    with pytest.raises(
        ShapeError, match=rf"input 0, by .*node 2 {ELEMENT}\(\[4\], 0, 1\): index 1 is out of"
    ):
        live_values(compiled.executable, [np.array([[3]])])
    with pytest.raises(
        InputError, match=rf"node 2 {ELEMENT} on the host: 2147483648 does not fit into 32 bits"
    ):
        live_values(compiled.executable, [np.array([[0, (1 << 31) - 1]])])


def test_a_file_cannot_make_the_host_compute_much() -> None:
    make = Positions(1, 5)
    many = make.made("aten.repeat.default", make.given, (1 << 20, 1 << 20), shape=(1, 1 << 20))
    few = make.made("aten.slice_copy.Tensor", many, 1, 0, 1, 1, shape=(1, 1))
    with pytest.raises(ShapeError, match="more than 16,384 elements"):
        live_values(make.read(few, 1).executable, [np.zeros((1, 5), np.int64)])
