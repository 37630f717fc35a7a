"""The inputs of a call: their names, shapes, live integers and indices, and the precision asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError, DtypeError, InputError, ShapeError
from pteron.format.records import MethodRecord, MoveCall
from pteron.host.tensors import View
from pteron.host.values import HostTensor
from pteron.ops.operand import Slot
from pteron.passes import Source
from pteron.plan import Executable, IndexRange, SymbolPort, TensorPort
from pteron.runtime import ValueSpec
from pteron.runtime.loaded_method import LoadedMethod, Precision
from pteron.runtime.sequence import Sequence
from pteron.runtime.specs import arranged, input_names
from pteron.runtime.staging import (
    growth_per_step,
    inputs_after,
    live_shapes,
    live_values,
    stage,
    steps_within,
)

TOKENS = TensorPort(0, DType.I64, (1, 4), Storage.I32, Slot(0))
POSITION = TensorPort(1, DType.I64, (1,), Storage.I32, Slot(1))
X = TensorPort(2, DType.F32, (3,), Storage.F32, Slot(2))


def executable(*sources: Source) -> Executable:
    """Tokens, a position, floats, and a live integer."""
    inputs = (TOKENS, POSITION, X, SymbolPort(9))
    return cast(Executable, SimpleNamespace(name="graph", inputs=inputs, sources=sources))


# Live integers and shapes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "dim", "index", "found"),
    [
        (5, None, 0, 5),
        (np.array([[7]]), None, 0, 7),
        (np.array([7]), 0, -1, 7),
        (HostTensor(np.array(7), DType.I64), None, 0, 7),
        (np.array([3, 5, 9]), 0, 1, 5),
        (np.array([3, 5, 9]), 0, -1, 9),
        (np.array([[3, 5]]), 1, 0, 3),
        (-(1 << 31), None, 0, -(1 << 31)),
    ],
)
def test_a_live_integer_in_an_input(given: Any, dim: int | None, index: int, found: int) -> None:
    assert live_values(executable(Source(4, 0, dim, index)), [given, 0, 0, 0]) == {4: found}


@pytest.mark.parametrize(
    ("given", "dim", "index", "error", "says"),
    [
        (np.array([3, 5, 9]), 0, 3, ShapeError, r"no element 3 along dim 0 of shape \[3\]"),
        (np.array([3]), 0, 1, ShapeError, r"no element 1 along dim 0 of shape \[1\]"),
        (np.array([3, 5]), None, 0, ShapeError, r"expected a single integer, got shape \[2\]"),
        (np.array([[3, 5], [1, 2]]), 0, 0, ShapeError, r"expected a single integer, got shape \[2\]"),
        (np.array([], np.int64), None, 0, ShapeError, r"expected a single integer, got shape \[0\]"),
        (1 << 31, None, 0, InputError, "2147483648 does not fit into 32 bits"),
        (np.array([-(1 << 31) - 1]), None, 0, InputError, "-2147483649 does not fit into 32 bits"),
        (View(None, 0, (1,), DType.I64, Storage.I32), None, 0, InputError, "it must be on the host"),
    ],
)
def test_what_is_no_live_integer(
    given: Any, dim: int | None, index: int, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=f"^graph, input 0: {says}|{says}$"):
        live_values(executable(Source(4, 0, dim, index)), [given, 0, 0, 0])


def test_shapes_up_to_the_maximum() -> None:
    x, tokens, position = np.zeros(2), np.zeros((1, 3)), np.zeros(1)
    assert live_shapes(executable(), [tokens, position, x, 3]) == ((1, 3), (1,), (2,), None)
    assert live_shapes(executable(), [HostTensor(tokens, DType.F32), position, x, 3])[0] == (1, 3)
    for wrong in (np.zeros((1, 5)), np.zeros(4), np.zeros((2, 2)), 5):
        with pytest.raises(ShapeError, match=r"expected a shape up to \[1, 4\], got \["):
            live_shapes(executable(), [wrong, position, x, 3])


def test_inputs_are_staged_in_the_types_of_their_buffers() -> None:
    inputs: list[Any] = [np.array([[3, 9]]), np.array([0]), np.ones(3, np.float32), 1]
    ranges = (IndexRange(0, -2, 9, "embedding"), IndexRange(1, 0, 0, "other"))
    staged = stage(executable(), inputs, ranges)
    assert [port for port, _ in staged] == [TOKENS, POSITION, X]
    assert [cast(Any, array).dtype for _, array in staged] == [np.int32, np.int32, np.float32]
    for wrong in (10, -3):
        with pytest.raises(
            InputError, match=f"graph, input 0: index {wrong} of embedding is outside -2 to 9"
        ):
            stage(executable(), [np.array([[0, wrong]]), *inputs[1:]], ranges)
    stage(executable(), [np.zeros((1, 0), np.int64), *inputs[1:]], ranges)
    with pytest.raises(DtypeError, match="values beyond 32 bits"):
        stage(executable(), [np.array([[1 << 31]]), *inputs[1:]], ())
    view = View(None, 0, (3,), DType.F16, Storage.F16)
    with pytest.raises(DtypeError, match=r"graph, input 2: .* holds f16, .* takes f32"):
        stage(executable(), [*inputs[:2], view, 1], ())


# Steps ------------------------------------------------------------------------------------------


def test_what_grows_from_step_to_step() -> None:
    inputs: list[Any] = [np.array([[3, 9]]), np.array([0]), np.ones(3, np.float32), 1]
    made = executable(Source(4, 1), Source(5, 3), Source(6, 1, 0, -1))
    assert growth_per_step(made, inputs, {1: 2, 3: -1}) == ({4: 2, 5: -1, 6: 2}, {Slot(1): (1, 2)})
    assert growth_per_step(made, inputs, {0: 1}) == ({}, {Slot(0): (2, 1)})
    with pytest.raises(DtypeError, match="only integers can grow from step to step"):
        growth_per_step(made, inputs, {2: 1})


def test_inputs_of_later_steps() -> None:
    inputs: list[Any] = [np.array([[3, 9]]), np.array([4]), None, 7]
    later = inputs_after(inputs, {1: 2, 3: -1, 2: 5}, 3)
    assert [cast(Any, later[1]).tolist(), later[3], later[2]] == [[10], 4, None]
    assert later[0] is inputs[0]
    assert inputs[1].tolist() == [4]


@pytest.mark.parametrize(
    ("given", "growth", "steps"),
    [
        ([3, 5], 2, 3), ([3, 5], 4, 2), ([3, 5], 5, 1), ([3, 5], -1, 4), ([3, 5], -2, 2), ([3, 5], 0, 100),
        ([10], 1, 0), ([], 1, 100), ([9], 1, 1),
    ],
)  # fmt: skip
def test_steps_end_where_indices_leave_their_range(given: list[int], growth: int, steps: int) -> None:
    array = np.array(given, np.int64)
    indices = (IndexRange(0, 0, 9, "embedding"),)
    assert steps_within(indices, [array], {0: growth}, 100) == steps
    assert steps_within(indices, [array], {}, 100) == 100
    for step in range(min(steps, 20)):
        later = array + step * growth
        assert not later.size or (later.min() >= 0 and later.max() <= 9)


# Names and specs --------------------------------------------------------------------------------


SPEC = ValueSpec("tensor", DType.F32, (17, 7, 31), (True, False, True), shape_min=(1, 7, 2))


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((17, 7, 31), None),
        ((1, 7, 2), None),
        ((18, 7, 31), "dim 0 is 18, expected from 1 to 17"),
        ((0, 7, 31), "dim 0 is 0, expected from 1 to 17"),
        ((17, 6, 31), "dim 1 is 6, expected 7"),
        ((17, 7, 1), "dim 2 is 1, expected from 2 to 31"),
        ((17, 7), "expected rank 3"),
    ],
)
def test_shapes_that_fit_a_spec(shape: tuple[int, ...], problem: str | None) -> None:
    assert str(SPEC) == "f32[≤17, 7, 2..31]"
    found = SPEC.misfit(shape)
    assert (found is None) == (problem is None)
    assert found is None or (problem or "") in found
    plain = ValueSpec("tensor", DType.F32, (17, 7), (True, False))
    assert plain.misfit((0, 7)) is None
    assert "expected at most 17" in str(plain.misfit((18, 7)))


def test_inputs_by_position_and_by_name() -> None:
    names = ("x", "input_0", "y")  # the second has a name that looks like a position
    assert arranged("m", names, [1], {"y": 3, "input_0": 2}) == [1, 2, 3]
    assert arranged("m", names, [], {"x": 1, "input_1": 2, "input_2": 3}) == [1, 2, 3]
    for given, named, says in (
        ([1, 2, 3, 4], {}, r"m takes 3 inputs \(x, input_0, y\), got 4"),
        ([1], {"x": 2}, "m: input 'x' is given twice"),
        ([1, 2], {"input_1": 2}, "m: input 'input_1' is given twice"),
        ([1], {"z": 2}, "m has no input 'z'; it has x, input_0, y"),
        ([1], {"y": 3}, "got 2: input_0 missing"),
        ([None], {"input_0": None}, "got 2: y missing"),
    ):
        with pytest.raises(InputError, match=says):
            arranged("m", names, given, cast(Mapping[str, object], named))


def named(positional: int, keywords: Any, count: int) -> tuple[str, ...]:
    """The names by a tree as exporters write it."""
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}

    def tree(value: Any) -> Any:
        if not isinstance(value, dict):
            return leaf
        children = [tree(child) for child in value.values()]
        return {"type": "builtins.dict", "context": json.dumps([*value]), "children_spec": children}

    by_position = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf] * positional}
    whole = {"type": "builtins.tuple", "context": "null", "children_spec": [by_position, tree(keywords)]}
    text = json.dumps([1, whole])
    return input_names(MethodRecord("m", (), tuple(range(count)), (), (), (), (), input_tree=text))


def test_names_that_exporters_keep() -> None:
    assert named(1, {"mask": 0, "cache": {"k": 0, "v": 0}}, 4) == ("input_0", "mask", "cache.k", "cache.v")
    assert named(1, {"input_0": 0}, 2) == ("input_0", "input_1"), "a position has that name"
    assert named(0, {"a.b": 0, "a": {"b": 0}}, 2) == ("input_0", "input_1"), "a name stands once"
    assert named(1, {"mask": 0}, 3) == ("input_0", "input_1", "input_2"), "another number of inputs"
    for text in ("", "[]", "{", '[1, {"children_spec": 3}]'):
        record = MethodRecord("m", (), (0,), (), (), (), (), input_tree=text)
        assert input_names(record) == ("input_0",)


# Precision, sequences ---------------------------------------------------------------------------


def test_an_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Precision.chosen() == Precision(3, "f32")
    assert Precision.chosen(2, "f16") == Precision(2, "f16")
    monkeypatch.setenv("PTERON_DIGITS", "2")
    monkeypatch.setenv("PTERON_PRODUCTS", " f16 ")
    assert Precision.chosen() == Precision(2, "f16")
    assert Precision.chosen(3, "f32") == Precision(3, "f32")
    monkeypatch.setenv("PTERON_DIGITS", "4")
    assert Precision.chosen(3).digits == 3
    with pytest.raises(InputError, match="PTERON_DIGITS='4': digits can be 2 or 3"):
        Precision.chosen()
    with pytest.raises(InputError, match="products='f8': products can be f32 or f16"):
        Precision.chosen(2, "f8")
    with pytest.raises(InputError, match="digits=0: digits can be 2 or 3"):
        Precision.chosen(0)


def test_scalars_of_a_call() -> None:
    """One that no instruction reads is a constant of the program; NaN equals itself here."""
    values, moves = (7, math.nan, 0), (MoveCall(0, 2),)
    fixed = MethodRecord("fixed", values, (0, 1), (0,), (), (), ())
    records = {"fixed": fixed, "read": replace(fixed, outputs=(2,), instructions=moves)}
    sequence = Sequence(lambda name: LoadedMethod("x.pte", records[name], (), (), None))
    method = sequence["fixed"]
    assert method(np.array(7), math.nan) == (7,)
    with pytest.raises(InputError, match="input 0: the program was exported for the value 7, got 8"):
        method(8, math.nan)
    with pytest.raises(InputError, match="input 1: the program was exported for the value nan, got 0"):
        method(7, 0.0)
    with pytest.raises(DtypeError, match="input 0: expected a scalar, got list"):
        method([7], math.nan)
    assert sequence["read"](8, math.nan) == (8,)


def test_a_sequence_that_is_closed_while_a_method_loads() -> None:
    """By another thread; what was loaded is closed, too."""
    record = MethodRecord("forward", (3,), (), (0,), (), (), ())

    def load(name: str) -> LoadedMethod:
        if name == "late":
            sequence.close()
        return LoadedMethod("x.pte", record, (), (), None)

    sequence = Sequence(load)
    method = sequence["forward"]
    assert method() == (3,)
    assert sequence["forward"] is method
    for name in ("late", "forward"):
        with pytest.raises(DeviceError, match="the sequence is closed"):
            sequence[name]
    with pytest.raises(DeviceError, match="the program is closed"):
        method()
