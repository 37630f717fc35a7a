"""Operators that NumPy runs give what PyTorch gives, on arguments by chance, and refuse what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch")

from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.host.lookup import find_operator
from pteron.host.numpy_operators import NUMPY, find_numpy_operator
from pteron.host.operator import HostOperator, Parameter
from pteron.host.tensors import widen_bf16
from pteron.host.torch_operators import find_torch_operator
from pteron.host.values import HostTensor, UnsetTensor

EXAMPLES = 50
SIGNS_OF_ZERO = {"relu", "maximum", "minimum", "amax", "amin"}  # of +0 and -0 either is the greater
SHAPES = [(), (0,), (1,), (3,), (5,), (2, 3), (5, 4), (1, 3), (3, 1), (2, 1, 3), (2, 0), (4, 6), (1, 1, 2)]
INTEGERS = [0, 1, -1, 2, 3, 5, 7, 100, 127, -128, 255, 300, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1]
FLOATS = [0.0, -0.0, 0.1, -1.5, 2.5, 3.5, 1e-40, 3e38, 1e300, float("inf"), float("-inf"), float("nan")]
BOOLEAN = {"eq", "ne", "lt", "le", "gt", "ge", "any", "all", "isnan", "isinf"}


class Chance:
    """Arguments of an operator, fit for it more often than not; the same ones for the same name."""

    def __init__(self, name: str, parameters: tuple[Parameter, ...]) -> None:
        self._base = name.removeprefix("aten::").split(".")[0]
        self._parameters = parameters
        self._random = Random(name)
        self._numpy = np.random.default_rng(self._random.randrange(1 << 32))
        self._choose = self._random.choice

    def arguments(self) -> list[Any]:
        self._dtypes = [DType.F32] * 6 + [DType.I64, DType.F64] * 2 + list(DType)
        if self._base.startswith("bitwise"):
            self._dtypes = [DType.I64, DType.I32, DType.U8, DType.BOOL, DType.F32]
        if self._random.random() < 0.8:
            self._dtypes = [self._choose(self._dtypes)]
        made: dict[str, Any] = {}
        for parameter in self._parameters[:-1]:
            made[parameter.name] = self._argument(parameter, made)
        return [*made.values(), UnsetTensor(self._choose([self._likely(made)] * 9 + [DType.F32, DType.I64]))]

    def _likely(self, made: dict[str, Any]) -> DType:
        """What the output is, mostly."""
        if self._base in BOOLEAN or self._base.startswith("logical"):
            return DType.BOOL
        first = made.get("self")
        if first is None:
            return DType.F32
        is_integer = self._base.startswith("arg") or self._base == "sum"
        is_integer |= self._base == "cumsum" and not first.dtype.is_float
        return DType.I64 if is_integer else cast(DType, first.dtype)

    def _tensor(self, shapes: Sequence[tuple[int, ...]] | None = None, dtypes: Any = None) -> HostTensor:
        shape, dtype = self._choose(shapes or SHAPES), self._choose(dtypes or self._dtypes)
        pool = np.array(FLOATS if dtype.is_float and dtype is not DType.BF16 else INTEGERS)
        with np.errstate(all="ignore"):
            array = self._numpy.choice(pool, shape).astype(dtype.numpy)
        if array.ndim >= 2 and self._random.random() < 0.3:
            array = np.ascontiguousarray(array.T).T  # the same elements, in another order in memory
        return HostTensor(np.asarray(array), dtype)

    def _argument(self, parameter: Parameter, made: dict[str, Any]) -> Any:
        """One argument, given those before it."""
        name, kind = parameter.name, parameter.kind
        shape = made["self"].array.shape if "self" in made else ()
        if kind.startswith("Optional[") and self._random.random() < 0.3:
            return None
        if kind in ("Tensor", "Optional[Tensor]"):
            return self._tensor_for(name, shape)
        if "List[int]" in kind:
            return self._list(name, shape)
        if "MemoryFormat" in kind or "ScalarType" in kind:
            return None
        if "number" in kind:
            whole = [1, 1, 1, 1, 2, 0.5] if name == "alpha" else INTEGERS + FLOATS + [True]
            return self._choose(whole)
        return self._random.random() < 0.5 if kind == "bool" else self._choose([-2, -1, -1, 0, 0, 1, 1, 2])

    def _tensor_for(self, name: str, shape: tuple[int, ...]) -> HostTensor:
        if name in ("condition", "mask"):
            return self._tensor(dtypes=[DType.BOOL] * 9 + [DType.U8])
        return self._tensor(
            [shape, shape[1:], ()] if name == "other" and self._random.random() < 0.5 else None
        )

    def _list(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Integers that an operator may take for a tensor of that shape."""
        count, rank, choose = int(np.prod(shape, dtype=int)), len(shape), self._random
        if self._base == "view_copy":
            return self._choose([(count,), (-1,), (1, -1), (count, 1), shape[::-1], (2, -1), (5, 5), (0, -1)])
        if self._base == "permute_copy":
            order = choose.sample(range(rank), rank)
            return tuple(dim - self._choose([0, rank]) for dim in order)
        if self._base == "expand_copy":
            grown = tuple(4 if size == 1 else size for size in shape)
            return self._choose([grown, (2, *grown), (-1,) * rank, (2, *(-1,) * rank), (-1, *grown), (4, 4)])
        if self._base == "repeat":
            return tuple(choose.randint(0, 2) for _ in range(rank + choose.randint(0, 1)))
        if name == "size":
            return tuple(self._choose([0, 1, 2, 3, 3, -1]) for _ in range(choose.randint(0, 3)))
        return tuple(choose.sample(range(-rank, max(1, rank)), choose.randint(0, min(2, rank))))


def outcome(operator: HostOperator, arguments: list[Any]) -> Any:
    """What the interpreter gets of an operator, or the error."""
    try:
        (written,) = operator.run(arguments).values()
    except HostError as error:
        return error
    assert isinstance(written, HostTensor)
    assert written.array.dtype == written.dtype.numpy
    return widen_bf16(written.array, written.dtype)


@pytest.mark.parametrize("name", NUMPY)
def test_results_are_those_of_pytorch(name: str) -> None:
    ours, theirs = find_numpy_operator(name, lambda _: None), find_torch_operator(name)
    assert ours is not None
    assert theirs is not None
    chance, compared = Chance(name, ours.parameters), 0
    base = name.removeprefix("aten::").split(".")[0]
    for _ in range(EXAMPLES):
        arguments = chance.arguments()
        found = outcome(ours, arguments)
        if isinstance(found, HostError) and "needs PyTorch" in str(found):
            continue
        expected = outcome(theirs, arguments)
        if isinstance(found, HostError) or isinstance(expected, HostError):
            assert type(found) is type(expected), (arguments, found, expected)
            continue
        compared += found.size
        np.testing.assert_array_equal(found, expected, str(arguments))
        if found.dtype.kind == "f" and base not in SIGNS_OF_ZERO:
            zeros = found == 0
            np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))
    assert compared >= 16  # elements


@pytest.mark.parametrize("name", NUMPY)
def test_parameters_are_those_of_the_schema(name: str) -> None:
    ours, theirs = find_operator(name), find_torch_operator(name)
    assert ours is not None
    assert theirs is not None
    assert ours.parameters == theirs.parameters


def test_what_numpy_leaves_to_pytorch_is_run_by_it() -> None:
    operator = find_operator("aten::add.out")
    assert operator is not None
    half = HostTensor(np.array([1, 2], np.float16), DType.F16)
    arguments = [half, half, 1, UnsetTensor(DType.F16)]
    (written,) = operator.run(arguments).values()
    np.testing.assert_array_equal(written.array, [2, 4])  # type: ignore[attr-defined]
    floats = HostTensor(np.array([[1, 2]], np.float32), DType.F32)
    left: dict[str, list[Any]] = {
        "add.out": arguments,
        "argmax.out": [floats, None, True, UnsetTensor(DType.I64)],
    }
    for name, given in left.items():
        alone = find_numpy_operator(f"aten::{name}", lambda _: None)
        assert alone is not None
        with pytest.raises(HostError, match="needs PyTorch"):
            alone.run(given)


def test_running_sums_are_in_double_precision() -> None:
    operator = find_numpy_operator("aten::cumsum.out", lambda _: None)
    assert operator is not None
    x = HostTensor(np.array([2**24, 1, 1], np.float32), DType.F32)
    found = outcome(operator, [x, 0, None, UnsetTensor(DType.F32)])
    assert found.tolist() == [2**24, 2**24, 2**24 + 2]


def test_results_are_memory_of_their_own() -> None:
    """An operator's output does not share memory with its input, so writing to it is safe."""
    a = HostTensor(np.arange(6, dtype=np.float32).reshape(2, 3), DType.F32)
    for name, rest in (
        ("view_copy.out", [(6,)]), ("permute_copy.out", [(0, 1)]), ("expand_copy.out", [(2, 3), False]),
        ("select_copy.int_out", [0, 1]), ("squeeze_copy.dims_out", [()]), ("repeat.out", [(1, 1)]),
    ):  # fmt: skip
        operator = find_operator(f"aten::{name}")
        assert operator is not None
        array = outcome(operator, [a, *rest, UnsetTensor(DType.F32)])
        assert array.flags.writeable
        assert not np.may_share_memory(array, a.array), name
