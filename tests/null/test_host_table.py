"""The operators that programs may call outside the delegates: all of them run, and none beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from host_arguments import good_arguments, output_dtype

from pteron.host.lookup import find_operator
from pteron.host.torch_table import FAMILIES, TABLE
from pteron.host.values import HostTensor, UnsetTensor


def typed(value: Any, dtype: Any) -> Any:
    """Outputs of an element type."""
    if isinstance(value, tuple):
        return tuple(typed(item, dtype) for item in value)
    return UnsetTensor(dtype) if isinstance(value, UnsetTensor) else value


@pytest.mark.parametrize("name", TABLE)
def test_every_operator_runs(name: str) -> None:
    operator = find_operator(name)
    assert operator is not None
    arguments = [
        typed(value, output_dtype(name, parameter))
        for value, parameter in zip(good_arguments(name, operator), operator.parameters, strict=True)
    ]
    written = operator.run(arguments)
    assert written.keys() == {place for place, each in enumerate(operator.parameters) if each.is_written}
    for value in written.values():
        assert all(isinstance(item, HostTensor) for item in (value if isinstance(value, tuple) else [value]))


def test_no_operator_stands_twice() -> None:
    assert len(TABLE) == sum(len(family.operators.split()) for family in FAMILIES)


@pytest.mark.parametrize(
    "name",
    [
        "aten::from_file.out", "aten::_embedding_bag_dense_backward.out", "aten::resize_", "prims::add",
        "aten::set_.source_Storage", "aten::view_as_real_copy.out", "aten::_fft_r2c.out", "aten::add.Tensor",
        "aten::no_such_operator", "no_such_namespace::add.out", "nonsense", "",
    ],
)  # fmt: skip
def test_others_are_refused(name: str) -> None:
    assert find_operator(name) is None


def test_an_update_in_place_leaves_what_is_protected() -> None:
    operator = find_operator("aten::fill_.Scalar")
    assert operator is not None
    before = np.ones(3, np.float32)
    given = HostTensor(before, output_dtype("aten::fill_.Scalar", operator.parameters[0])).protected()
    (written,) = operator.run([given, 7]).values()
    np.testing.assert_array_equal(written.array, [7, 7, 7])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(before, [1, 1, 1])
