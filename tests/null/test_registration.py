"""A second operator or rewrite of one name is an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pteron.ops import OPERATORS, define
from pteron.ops.rewrite import REWRITES, Flow, Replacement, rewrite
from pteron.passes import is_available


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
