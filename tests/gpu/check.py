"""check_op: one operator against PyTorch in float64, at several live shapes, in memory full of NaNs."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from arguments import Argument, Array, Leaf, Symbol, TensorArgument, leaves, substitute
from one_operator import OneOperator, largest

from pteron.dtypes import DType
from pteron.errors import GraphError, ShapeError
from pteron.ops import Target
from pteron.reference import find
from pteron.reference.table import aten_reference

Oracle: TypeAlias = Callable[..., Any]
Test: TypeAlias = Callable[..., None]

# Small, prime, one and the maximum, so that growing, shrinking and coming back are all met.
LIVE: dict[str, tuple[int, ...]] = {"S": (7, 1, 11, 5, 1), "T": (3, 13, 1, 4, 2)}
NOTHING = {"S": (3, 0, 5, 0, 1), "T": (2, 4, 0, 0, 1)}  # sizes that come down to no elements
TOLERANCE = {"f32": 1e-5, "f16": 2e-3}
FLOATS = ("f32", "f16")
INTEGERS_AND_FLOATS = ("f32", "f16", "i32", "i64")
EVERY_DTYPE = (*INTEGERS_AND_FLOATS, "bool")


def each(names: str | Sequence[str], cases: Iterable[Any], every: int = 1) -> Callable[[Test], Test]:
    """Run a test in a loop over cases of milliseconds, where `pytest.mark.parametrize` would make a test of
    each; an error names its case. `target` of such a test comes from the fixture `routes`. Without the whole
    long tail, every n-th case is run."""
    wanted, values = [names] if isinstance(names, str) else names, list(cases)

    def looped(test: Test) -> Test:
        turns = itertools.count()  # loops around this one let it begin with the other route each time
        parameters = dict(inspect.signature(test).parameters)
        takes_target = parameters.pop("target", None) is not None

        @functools.wraps(test)
        def run(is_whole: bool = True, **fixtures: Any) -> None:
            routes, turn = fixtures.pop("routes") if takes_target else None, next(turns)
            if "is_whole" in parameters:  # the test is a loop itself
                fixtures["is_whole"] = is_whole
            for index, case in enumerate(values if is_whole else values[every // 2 :: every]):
                given = dict(zip(wanted, (case,) if isinstance(names, str) else case, strict=True))
                targets = routes.of_case(index + turn) if routes else [{}]
                for target in targets:
                    try:
                        test(**given, **fixtures, **target)
                    except BaseException as error:
                        error.add_note(f"with {given} {target}")
                        raise

        added = ("routes", "is_whole") if takes_target else ("is_whole",)
        taken = [*(name for name in parameters if name not in (*wanted, *added)), *added]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # for pytest
            [inspect.Parameter(name, kind) for name in taken]
        )
        return run

    return looped


# Decorators that run a test in every type of a kind.
floats = pytest.mark.parametrize("dtype", FLOATS)
each_float, each_integer_and_float, every_dtype = (
    each("dtype", dtypes) for dtypes in (FLOATS, INTEGERS_AND_FLOATS, EVERY_DTYPE)
)


def check_op(
    name: str,
    *arguments: Argument,
    oracle: Oracle | None = None,
    live: Mapping[str, Sequence[int]] | None = None,
    dtype: str = "f32",
    out: str | None = None,
    tolerance: float | None = None,
    atol: float | None = None,
    target: Target | None = None,
    plans: int | None = None,
) -> None:
    """Run an operator at every live shape and compare with the oracle.

    The oracle gets the arguments as PyTorch tensors, floats in float64 and integers in int64. By default it
    is PyTorch's own operator, or the reference of an operator that PyTorch does not have. `out` is the
    element type of the outputs where the oracle's does not determine it, `tolerance` is relative and, unless
    `atol` is given, absolute, `plans` how many plans the runs may
    take beyond the one at the maximum.
    """
    oracle = oracle or aten_reference(name) or find(name)
    assert oracle is not None, f"no reference for {name}"
    runs = draw_runs(arguments, live or LIVE, dtype)
    expected = [_outputs(oracle(*(substitute(a, _for_torch(run)) for a in arguments))) for run in runs]
    outputs = [
        (largest([np.empty(result.shape) for result in results]), _dtype(results[0], dtype, out))
        for results in zip(*expected, strict=True)
    ]
    most = {leaf: _most(leaf, [run[leaf] for run in runs]) for leaf in runs[0]}
    operator = OneOperator(name, arguments, most, outputs, target)
    planned = operator.counters.plans
    try:
        for run, results in zip(runs, expected, strict=True):
            for (_, kind), array, result in zip(outputs, operator.run(run), results, strict=True):
                _compare(array, result, kind, tolerance, atol)
    except BaseException as error:
        error.add_note(f"{name} of {arguments} in {dtype}")
        raise
    finally:
        operator.close()
    assert plans is None or operator.counters.plans - planned <= plans


def refuse_op(
    name: str,
    *arguments: Argument,
    match: str,
    live: Mapping[str, Sequence[int]] | None = None,
    dtype: str = "f32",
    out: Sequence[tuple[int, ...]] = ((64,),),
) -> None:
    """An operator must refuse its arguments, by an error that names it and matches `match`."""
    runs = draw_runs(arguments, live or {}, dtype)
    most = {leaf: _most(leaf, [run[leaf] for run in runs]) for leaf in runs[0]}
    outputs = [(shape, DType(dtype)) for shape in out]

    def load_and_run() -> None:
        operator = OneOperator(name, arguments, most, outputs)
        for run in runs:
            operator.run(run)

    with pytest.raises((GraphError, ShapeError), match=match) as caught:
        load_and_run()
    assert name in str(caught.value)


def draw_runs(
    arguments: Sequence[Argument], live: Mapping[str, Sequence[int]], dtype: str
) -> list[dict[Leaf, Any]]:
    """What the leaves of the arguments are at each run. Constants are drawn once."""
    random = np.random.default_rng(0)
    found = list(dict.fromkeys(leaves(arguments)))
    drawn: dict[Leaf, Any] = {
        leaf: leaf.draw({}, dtype, random)
        for leaf in found
        if isinstance(leaf, TensorArgument) and leaf.is_constant
    }

    def draw(leaf: Leaf, sizes: Mapping[str, int]) -> Any:
        if leaf in drawn:
            return drawn[leaf]
        return sizes[leaf.name] if isinstance(leaf, Symbol) else leaf.draw(sizes, dtype, random)

    return [{leaf: draw(leaf, sizes) for leaf in found} for sizes in _sizes_of_runs(found, live)]


def _sizes_of_runs(found: Sequence[Leaf], live: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """The live sizes and integers at each run. Sizes are at their maximum together first, as at load."""
    names = {size for leaf in found if isinstance(leaf, TensorArgument) for size in leaf.shape}
    symbols = {leaf.name for leaf in found if isinstance(leaf, Symbol)}
    used = {name: tuple(live[name]) for name in names | symbols if isinstance(name, str)}
    if not symbols:
        used = {name: (max(values), *values) for name, values in used.items()}
    count = max(map(len, used.values()), default=1)
    return [{name: values[run % len(values)] for name, values in used.items()} for run in range(count)]


def _most(leaf: Leaf, values: list[Any]) -> Any:
    """A leaf at its maximum: a constant's own values, an input's largest shape."""
    if isinstance(leaf, Symbol) or leaf.is_constant:
        return values[0]
    return np.empty(largest(values), values[0].dtype)


def _for_torch(run: Mapping[Leaf, Any]) -> dict[Leaf, Any]:
    wide = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}
    return {
        leaf: torch.from_numpy(value.astype(wide[value.dtype.kind]))
        if isinstance(value, np.ndarray)
        else value
        for leaf, value in run.items()
    }


def _outputs(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _dtype(result: torch.Tensor, dtype: str, out: str | None) -> DType:
    """The element type an output has, by the kind of the oracle's and the type the case is run in."""
    if out is not None:
        return DType(out)
    if result.dtype == torch.bool:
        return DType.BOOL
    if result.dtype.is_floating_point:
        return DType(dtype if dtype in FLOATS else "f32")
    return DType(dtype if dtype in ("i32", "i64") else "i64")


def _compare(
    array: Array, result: torch.Tensor, dtype: DType, tolerance: float | None, atol: float | None = None
) -> None:
    assert array.shape == tuple(result.shape)
    expected = result.numpy().astype(np.float64 if dtype.is_float else dtype.numpy)
    if dtype.is_float:
        bound = tolerance or TOLERANCE[str(dtype)]
        np.testing.assert_allclose(
            array.astype(np.float64),
            expected,
            rtol=bound,
            atol=bound if atol is None else atol,
            equal_nan=True,
        )
    else:
        np.testing.assert_array_equal(array, expected.astype(array.dtype))
