"""Every elementwise operator of the registry at special, huge and tiny values, against float64.

An error may be twice that of eager PyTorch in the same type, plus four units in the last place. The signs of
zeros are not compared, and subnormal numbers may count as zero: WGSL leaves both open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from arguments import Argument, Leaf, tensor
from one_operator import OneOperator

import pteron.families  # noqa: F401  # defines the operators
from pteron.dtypes import DType
from pteron.errors import GraphError, ShapeError
from pteron.ops import OPERATORS, Target
from pteron.ops.operator import Operator
from pteron.reference import find

Array = npt.NDArray[Any]


def _function(operator: Operator) -> Any:
    found = operator.compute
    while isinstance(found, partial):
        found = found.func
    return found


SWEPT = [name for name, each in OPERATORS.items() if "families.elementwise" in _function(each).__module__]

# Of operators that only rewrites make.
REFERENCES: dict[str, Callable[..., Any]] = {
    "pteron.hardsigmoid": torch.nn.functional.hardsigmoid,
    "pteron.silu": torch.nn.functional.silu,
    "pteron.silu_mul": lambda x, y: torch.nn.functional.silu(x) * y,
}

# The other arguments of an operator: by name or kind, two or three choices of which each is taken once.
NUMBERS = ((0.75, 2.0, 3.0), (-1.5, 0.5, 2.0))
INTEGERS = ((3, 5, 7), (-2, 9, -4))
CHOICES: dict[str, Sequence[Any]] = {
    "approximate": ("none", "tanh"),
    "rounding_mode": (None, "trunc", "floor"),
    "decimals": (2, -1),
}


@dataclass(frozen=True)
class Allowance:
    """An error that an operator may have beyond that of eager PyTorch, by exact result and arguments."""

    reason: str
    error: Callable[..., Any]


EPSILON = 2.0**-23
_EXP = Allowance(
    "the exponential is WGSL's: the kernels that products end with have the same, to the bit",
    lambda exact, x, *_: 2 * np.abs(x) * EPSILON * np.abs(exact),
)
_ALPHA = Allowance(
    "alpha · b is rounded before the sum, and may overflow",
    lambda exact, a, b, alpha: np.where(np.abs(b * alpha) < 3.4e38, np.abs(b * alpha) * EPSILON, np.inf),
)
ALLOWANCES = {
    "aten.sigmoid.default": _EXP,
    "pteron.silu": _EXP,
    "pteron.silu_mul": _EXP,
    "aten.add.Tensor": _ALPHA,
    "aten.sub.Tensor": _ALPHA,
    "aten.gelu.default": Allowance(
        "1 + erf(x) cancels, as it does in eager PyTorch, and erf has an absolute error of 2e-7",
        lambda exact, x, *_: 3e-7 * np.abs(x),
    ),
}


def _numbers() -> Array:
    random = np.random.default_rng(0)
    near_one = [1 + sign * 2.0**-bit for bit in range(1, 25) for sign in (1, -1)]
    # 16367173 * 2^72 is the f32 nearest to a multiple of pi / 2.
    turns = [np.pi / 2 * n for n in (*range(1, 33), 1000, 4097, 99999, 16777213)] + [16367173 * 2.0**72]
    limits = [0.0, 88.0, 88.7, 89.0, 104.0, 3.4028235e38, 1.1754944e-38, 1e-40, 1.4e-45, np.inf]
    powers = [*10.0 ** np.arange(-37, 39), *2.0 ** np.arange(-25, 54)]
    drawn = [*random.uniform(0, 10, 100), *random.uniform(0, 100, 50), *10.0 ** random.uniform(-38, 38, 100)]
    found = [*near_one, *turns, *limits, *powers, *drawn]
    return np.array([*found, *(-x for x in found), np.nan], np.float32)


def _pairs() -> tuple[Array, Array]:
    random = np.random.default_rng(1)
    some = [0, 1, 2, 3, 0.5, 0.1, 7.5, 1e-3, 1e10, 1e30, 1e-30, 3.4028235e38, 1.1754944e-38, 1e-40]
    some += [16777216, 8388609, 1.0000001, 0.99999994, 0.999, 402.2, 88, 31, np.inf]
    a, b = (np.ravel(each) for each in np.meshgrid(*[[*some, *(-x for x in some), np.nan]] * 2))
    # bases, and exponents of results up to e^88; then any two numbers
    bases = [
        10.0 ** random.uniform(-10, 10, 300),
        1 + random.uniform(-1, 1, 300) * 10.0 ** random.uniform(-6, 0, 300),
    ]
    exponents = [random.uniform(-88, 88, 300) / np.log(base) for base in bases]
    any_two = [10.0 ** random.uniform(-20, 20, 300) * random.choice([-1, 1], 300) for _ in range(2)]
    return (
        np.concatenate([a, *bases, any_two[0]]).astype(np.float32),
        np.concatenate([b, *exponents, any_two[1]]).astype(np.float32),
    )


def _operands(operator: Operator, dtype: str) -> list[Array]:
    """Values for each tensor."""
    tensors = [argument for argument in operator.signature.inputs if argument.kind == "tensor"]
    if dtype == "i32":
        some = [0, 1, 2, 3, 5, 31, 32, 33, 127, 46341, 2**24 + 1, 2**31 - 2, 2**31 - 1]
        whole = np.array([*some, *(-x for x in some), -(2**31)], np.int32)
        columns = [np.ravel(each) for each in np.meshgrid(*[whole] * min(len(tensors), 2))]
        if len(columns) == 2:  # the truncated quotient of these two ends the process in PyTorch
            columns[1][(columns[0] == -(2**31)) & (columns[1] == -1)] = 1
    else:
        columns = [_numbers()] if len(tensors) == 1 else list(_pairs())
    columns += [np.roll(column, 7) for column in columns[: len(tensors) - len(columns)]]
    with np.errstate(over="ignore"):
        columns = [column.astype(DType(dtype).numpy) for column in columns]
    return [
        column > 0 if argument.name == "condition" else column
        for argument, column in zip(tensors, columns, strict=True)
    ]


def _choices(operator: Operator, dtype: str) -> Iterator[list[Any]]:
    """What an operator's arguments that are no tensors are."""
    others = [argument for argument in operator.signature.inputs if argument.kind != "tensor"]
    named = [CHOICES[argument.name] for argument in others if argument.name in CHOICES]
    if named:
        assert len(others) == 1
        yield from ([value] for value in named[0])
        return
    assert all(argument.kind == "number" for argument in others), "add the argument's values to CHOICES"
    for numbers in (INTEGERS if dtype == "i32" else NUMBERS)[: 2 if others else 1]:
        yield list(numbers[: len(others)])


def _arguments(operator: Operator, tensors: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Both kinds in the order of the signature."""
    given, rest = iter(tensors), iter(others)
    return [next(given if argument.kind == "tensor" else rest) for argument in operator.signature.inputs]


def _computed(
    operator: Operator, columns: list[Array], others: list[Any], out: DType, target: Target
) -> Array | None:
    """What the kernel computes, or None if the operator refuses the type."""
    leaves = [tensor(values=column, dtype=str(DType.of(column.dtype))) for column in columns]
    arguments: list[Argument] = _arguments(operator, leaves, others)
    given: dict[Leaf, Any] = dict(zip(leaves, columns, strict=True))
    try:
        one = OneOperator(operator.name, arguments, given, [(columns[0].shape, out)], target)
    except (GraphError, ShapeError):
        return None
    try:
        return one.run(given)[0]
    finally:
        one.close()


def _flushed(column: Array) -> Array:
    if column.dtype.kind != "f":
        return column
    return np.where(np.abs(column) < np.finfo(column.dtype).tiny, column.dtype.type(0), column)


def _errors(found: Array, exact: Array, kind: Any) -> Array:
    """Differences, an infinity as the first power of two beyond the type, infinite where one is no number."""
    beyond = 2.0 ** np.finfo(kind).maxexp
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.clip(found.astype(np.float64), -beyond, beyond) - np.clip(exact, -beyond, beyond))
    return np.where(
        np.isnan(exact) | np.isnan(found), np.where(np.isnan(exact) & np.isnan(found), 0, np.inf), apart
    )


@pytest.mark.long(every=5)
@pytest.mark.parametrize("name", SWEPT)
def test_values(name: str, target: Target) -> None:
    operator, reference = OPERATORS[name], REFERENCES.get(name) or find(name)
    assert reference is not None, f"{name} needs a reference in REFERENCES"
    compared = 0
    for dtype in ("f32", "f16", "i32"):
        columns = _operands(operator, dtype)
        for others in _choices(operator, dtype):
            try:
                eager = _by_torch(reference, operator, columns, others)
            except RuntimeError as error:
                if "ZeroDivisionError" not in str(error):
                    continue  # PyTorch has it for other types
                columns[1] = np.where(columns[1] == 0, 1, columns[1])
                eager = _by_torch(reference, operator, columns, others)
            out = DType.of(eager.dtype)
            assert out is not None
            found = _computed(operator, columns, others, out, target)
            if found is None:
                continue
            compared += 1
            worst = _worst(reference, operator, columns, others, found, eager)
            assert not worst, f"{name} of {dtype} and {others}: (operands, found, eager, exact) are {worst}"
    assert compared


def _by_torch(
    reference: Callable[..., Any],
    operator: Operator,
    columns: Sequence[Array],
    others: list[Any],
    wide: bool = False,
) -> Array:
    tensors = [torch.from_numpy(np.array(column)) for column in columns]
    if wide:
        tensors = [x.double() if x.dtype != torch.bool else x for x in tensors]
    result: Array = reference(*_arguments(operator, tensors, others)).numpy()
    return result


def _worst(
    reference: Callable[..., Any],
    operator: Operator,
    columns: list[Array],
    others: list[Any],
    found: Array,
    eager: Array,
) -> list[Any]:
    """The first few elements that are wrong, whichever of the subnormal operands count as zero."""
    is_wrong = np.ones(found.shape, bool)
    exact = eager
    for variant in itertools.product(
        *({id(x): x for x in (column, _flushed(column))}.values() for column in columns)
    ):
        if eager.dtype.kind != "f":
            is_wrong &= found.astype(eager.dtype) != _by_torch(reference, operator, variant, others)
            continue
        exact = _by_torch(reference, operator, variant, others, wide=True)
        limits = np.finfo(eager.dtype)
        unit = limits.eps * 2.0 ** np.floor(
            np.log2(np.clip(np.abs(np.nan_to_num(exact)), limits.tiny, limits.max))
        )
        bound = 2 * _errors(eager, exact, eager.dtype) + 4 * unit
        if operator.name in ALLOWANCES:
            wide = [column.astype(np.float64) for column in columns]
            with np.errstate(invalid="ignore"):
                bound += np.nan_to_num(
                    ALLOWANCES[operator.name].error(exact, *wide, *others), nan=0, posinf=np.inf
                )
        is_zero = (np.abs(exact) < limits.tiny) & (np.abs(found) <= limits.tiny)
        is_wrong &= ~(_errors(found, exact, eager.dtype) <= bound) & ~is_zero
    return [
        (*(column[at].item() for column in columns), found[at].item(), eager[at].item(), exact[at].item())
        for at in np.flatnonzero(is_wrong)[:5]
    ]
