"""Signatures: the line that names an operator's arguments, and what each kind of them takes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from pteron.dtypes import DType
from pteron.graph import SymInt, Tensor, Value, ValueList
from pteron.ops import OPERATORS, Kind, RequirementError, define
from pteron.ops.rewrite import REWRITES, Flow, Replacement, rewrite
from pteron.ops.signature import Argument, conform, parse
from pteron.passes import is_available

X = Tensor(0, DType.F32, (3,))
P = SymInt(1)


def argument(word: str) -> Argument:
    (found,) = parse(f"{word} -> out").inputs
    return found


def test_a_line() -> None:
    signature = parse("self dim:ints? cache! keepdim:bool -> out mean")
    assert [found.name for found in signature.inputs] == ["self", "dim", "cache", "keepdim"]
    assert [found.kind for found in signature.inputs] == ["tensor", "ints", "tensor", "bool"]
    assert [found.optional for found in signature.inputs] == [False, True, False, False]
    assert [found.mutated for found in signature.inputs] == [False, False, True, False]
    assert [found.name for found in signature.outputs] == ["out", "mean"]
    assert parse("-> out").inputs == ()


def test_a_tensor_that_is_changed_or_missing() -> None:
    (found,) = parse("cache!? -> out").inputs
    assert (found.name, found.kind, found.optional, found.mutated) == ("cache", "tensor", True, True)


def test_ignored_arguments_are_no_inputs() -> None:
    signature = parse("self dtype:ignored dim:int -> out")
    assert [found.name for found in signature.arguments] == ["self", "dtype", "dim"]
    assert [found.name for found in signature.inputs] == ["self", "dim"]


def test_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="unknown kind 'tensr' in 'x:tensr'"):
        parse("x:tensr -> out")


@pytest.mark.parametrize(
    ("word", "value", "expected"),
    [
        ("x", X, X),
        ("x?", None, None),
        ("x:int", 3, 3),
        ("x:int", 3.0, 3),
        ("x:int", True, 1),
        ("x:int", P, P),
        ("x:int?", None, None),
        ("x:ints", (1, 2.0), (1, 2)),
        ("x:ints", (), ()),
        ("x:float", 2, 2.0),
        ("x:float", math.inf, math.inf),
        ("x:floats", (1, 2.5), (1.0, 2.5)),
        ("x:number", 2, 2),
        ("x:number", 2.5, 2.5),
        ("x:number", True, 1),
        ("x:number", P, P),
        ("x:bool", 1, True),
        ("x:bool", 0.0, False),
        ("x:str", "tanh", "tanh"),
    ],
)
def test_what_conforms(word: str, value: Value, expected: Value) -> None:
    result = conform(argument(word), value)
    assert result == expected
    assert type(result) is type(expected)


def test_a_list_of_live_integers_keeps_them() -> None:
    result = conform(argument("size:ints"), ValueList(2, (P, 3.0)))
    assert isinstance(result, ValueList)
    assert result.items == (P, 3)


def test_a_list_of_tensors_may_have_holes() -> None:
    items = ValueList(2, (None, X))
    assert conform(argument("indices:tensors"), items) is items


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("x", None),
        ("x", 3),
        ("x:int", 2.5),
        ("x:int", "3"),
        ("x:int", None),
        ("x:ints", 3),
        ("x:ints", (1, 2.5)),
        ("x:ints", ValueList(2, (X,))),
        ("x:float", "1"),
        ("x:float", P),
        ("x:bool", 2),
        ("x:bool", None),
        ("x:str", 1),
        ("x:tensors", X),
        ("x:tensors", ValueList(2, (3,))),
        ("x:number", X),
    ],
)
def test_what_does_not_conform(word: str, value: Value) -> None:
    with pytest.raises(RequirementError, match=r"^argument x: "):
        conform(argument(word), value)


def test_every_operator_has_one_kind_of_output() -> None:
    """Several outputs are tensors by name, one list of tensors, or one live integer."""
    for name, operator in OPERATORS.items():
        kinds = [output.kind for output in operator.signature.outputs]
        assert kinds in (["tensors"], ["symint"]) or set(kinds) == {"tensor"}, name
        assert (kinds == ["symint"]) == (operator.kind in (Kind.SCALAR, Kind.SOURCE)), name


# Names -------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def tables_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is registered here stays."""
    monkeypatch.setattr("pteron.ops.operator.OPERATORS", dict(OPERATORS))
    monkeypatch.setattr("pteron.ops.rewrite.REWRITES", dict(REWRITES))


def test_one_name_for_two_operators() -> None:
    with pytest.raises(ValueError, match=r"operator aten\.relu\.default is defined twice"):
        define("aten.relu.default", "x -> out", shape=lambda x: x, compute=lambda x, out: ())


def test_one_name_for_two_rewrites() -> None:
    def find(flow: Flow) -> Iterator[Replacement]:
        return iter(())

    assert rewrite("test rewrite")(find) is find
    for name in ("test rewrite", *REWRITES):
        with pytest.raises(ValueError, match=f"{name} is defined twice"):
            rewrite(name)(find)


def test_files_may_not_call_operators_of_our_own() -> None:
    """Files name operators of ATen and of the exporter; rewrites and Pteron's own graphs alone name ours."""
    assert is_available("aten.mul.Tensor")
    assert not is_available("pteron.silu_mul")
    assert is_available("pteron.silu_mul", to_internal=True)
    assert is_available("pteron.attention.default")  # of generated programs
