"""Registering operators and rewrites: what does not agree with itself, or is there already, is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pteron.ops import OPERATORS, Kind, define, op
from pteron.ops.rewrite import REWRITES, Flow, Replacement, rewrite
from pteron.passes import is_available

NAME = "test.three.default"
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def tables_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is registered here stays."""
    monkeypatch.setattr("pteron.ops.operator.OPERATORS", dict(OPERATORS))
    monkeypatch.setattr("pteron.ops.rewrite.REWRITES", dict(REWRITES))


def register(shape: Function | None, compute: Function, kind: Kind = Kind.COMPUTE) -> None:
    define(NAME, "a b? dim:int -> out", shape=shape, compute=compute, kind=kind)


RIGHT: dict[str, tuple[Function | None, Function, Kind]] = {
    "by name": (lambda a, b, dim: a, lambda a, b, dim, out: (), Kind.COMPUTE),
    "as many as come": (lambda *_: (), lambda *_: (), Kind.COMPUTE),
    "with a default": (lambda a, b, dim, more=0: a, lambda a, b, dim, out, more=0: (), Kind.COMPUTE),
    "with the target": (lambda a, *_: a, lambda a, b, dim, out, *, target: (), Kind.COMPUTE),
    "on the host, where it gives its output": (None, lambda a, b, dim: 0, Kind.SCALAR),
}


@pytest.mark.parametrize("what", RIGHT)
def test_functions_that_take_what_the_signature_lists(what: str) -> None:
    register(*RIGHT[what])


WRONG: dict[str, tuple[Function | None, Function, Kind, str]] = {
    "a shape rule of fewer": (lambda a, b: a, lambda *_: (), Kind.COMPUTE, "shape rule.* 3 values"),
    "a shape rule of more": (lambda a, b, dim, out: a, lambda *_: (), Kind.COMPUTE, "shape rule.* 3 values"),
    "no output": (lambda *_: (), lambda a, b, dim: (), Kind.COMPUTE, "function.* 4 values"),
    "a keyword that is not given": (lambda *_: (), lambda *_, extra: (), Kind.COMPUTE, "function.* 4 values"),
    "an output on the host": (None, lambda a, b, dim, out: 0, Kind.SCALAR, "function.* 3 values"),
}


@pytest.mark.parametrize("what", WRONG)
def test_functions_that_take_another_number(what: str) -> None:
    shape, compute, kind, words = WRONG[what]
    with pytest.raises(ValueError, match=rf"^operator test\.three\.default: its {words}$"):
        register(shape, compute, kind)


def test_a_decorated_function_is_checked_too() -> None:
    with pytest.raises(ValueError, match=r"^operator test\.three\.default: its function"):

        @op(NAME, "a b -> out", shape=lambda a, b: a)
        def three(a: object, b: object) -> Iterator[object]:
            return iter(())


def test_one_name_for_two_operators() -> None:
    register(lambda *_: (), lambda *_: ())
    with pytest.raises(ValueError, match=r"operator test\.three\.default is defined twice"):
        register(lambda *_: (), lambda *_: ())
    with pytest.raises(ValueError, match=r"operator aten\.relu\.default is defined twice"):
        define("aten.relu.default", "x -> out", shape=lambda x: x, compute=lambda x, out: ())


def test_one_name_for_two_rewrites() -> None:
    def find(flow: Flow) -> Iterator[Replacement]:
        return iter(())

    assert rewrite("test rewrite")(find) is find
    for name in ("test rewrite", *REWRITES):
        with pytest.raises(ValueError, match=f"rewrite {name} is defined twice"):
            rewrite(name)(find)


def test_files_may_not_call_operators_of_our_own() -> None:
    """Files name operators of ATen and of the exporter; rewrites and Pteron's own graphs alone name ours."""
    assert is_available("aten.mul.Tensor")
    assert not is_available("pteron.silu_mul")
    assert is_available("pteron.silu_mul", to_internal=True)
