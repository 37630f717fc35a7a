"""The operators that programs may call outside the delegates: all of them run, and none beside them."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from host_arguments import good_arguments, integers, mask, ones, output_dtype

from pteron.dtypes import DType
from pteron.errors import HostError
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


LEAST = HostTensor(np.array([-(2**63), 5]), DType.I64)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("gather.out", {"index": integers(0, 3, 1)}, "index from 0 to 3 for a size of 3"),
        ("gather.out", {"index": integers(-1, 2)}, "index from -1 to 2 for a size of 3"),
        ("gather.out", {"index": ones(1)}, "index are f32, not integers"),
        ("gather.out", {"dim": 3}, "a tensor [2, 3, 4] has no dim 3"),
        ("index.Tensor_out", {"indices": (None, integers(0, -4))}, "indices[1] from -4 to 0 for a size of 3"),
        ("index.Tensor_out", {"indices": (mask(3),)}, "indices[0] [3] is no mask of [2, 3, 4]"),
        (
            "index.Tensor_out",
            {"indices": (mask(2, 3), integers(4))},
            "indices[1] from 4 to 4 for a size of 4",
        ),
        ("index.Tensor_out", {"indices": (integers(0),) * 4}, "4 indices for a tensor [2, 3, 4]"),
        ("embedding.out", {"indices": integers(0, 5)}, "indices from 0 to 5 for a size of 5"),
        ("embedding.out", {"weight": ones(5)}, "weight is [5], not rows"),
        ("embedding.out", {"padding_idx": 5}, "padding_idx 5 of 5 rows"),
        ("_embedding_bag.out", {"offsets": integers(1, 2)}, "offsets must begin at 0 and rise"),
        ("_embedding_bag.out", {"offsets": integers(0, 2, 1)}, "offsets must begin at 0 and rise"),
        ("_embedding_bag.out", {"offsets": integers(0, 4)}, "offsets from 0 to 4 for a size of 4"),
        (
            "_embedding_bag.out",
            {"include_last_offset": True},
            "the last offset must be the number of indices",
        ),
        ("_embedding_bag.out", {"mode": 3}, "mode 3 is not 0, 1 or 2"),
        ("_embedding_bag.out", {"per_sample_weights": ones(2)}, "per_sample_weights must be as many"),
        ("floor_divide.out", {"self": LEAST, "other": integers(-1)}, "the least integer is divided by -1"),
        ("remainder.Scalar_out", {"self": LEAST, "other": -1}, "the least integer is divided by -1"),
        ("round.decimals_out", {"decimals": 401}, "decimals is 401; expected -400 to 400"),
        ("native_dropout.out", {"p": 1.5}, "p is 1.5; expected 0 to 1"),
        ("_cdist_forward.out", {"p": -1.0}, "p is -1.0; expected 0 to any"),
        ("avg_pool2d.out", {"stride": (0, 1)}, "stride has 0; expected at least 1"),
        ("avg_pool2d.out", {"padding": (-1, 0)}, "padding has -1; expected at least 0"),
        ("avg_pool2d.out", {"kernel_size": (1 << 31, 1)}, "kernel_size has 2147483648"),
        ("avg_pool2d.out", {"divisor_override": 0}, "divisor_override is 0"),
        ("col2im.out", {"output_size": (0, 5)}, "output_size has 0; expected at least 1"),
        ("grid_sampler_2d.out", {"padding_mode": 3}, "padding_mode is 3; expected 0 to 2"),
        ("upsample_nearest2d.out", {"scales_h": 9.0}, "a scale of 9.0 from 6 to 7"),
        ("upsample_nearest2d.out", {"scales_w": float("inf")}, "a scale of inf"),
        ("upsample_nearest2d.out", {"scales_w": 0.0}, "a scale of 0.0"),
        ("native_group_norm.out", {"group": 3}, "3 groups of 4 channels"),
        ("native_group_norm.out", {"HxW": 29}, "sizes (1, 4, 29) are not those of [1, 4, 6, 5]"),
        ("native_group_norm.out", {"bias": ones(3)}, "bias is [3] for 4 channels"),
        ("_native_batch_norm_legit.out", {"running_var": ones(3)}, "running_var is [3] for 4 channels"),
        ("repeat_interleave.Tensor_out", {"repeats": integers(2, -1, 3)}, "repeats are negative"),
        ("repeat_interleave.Tensor_out", {"repeats": ones(3)}, "repeats are f32, not i32 or i64"),
        ("repeat_interleave.Tensor_out", {"output_size": 6}, "output_size is 6"),
    ],
)
def test_arguments_that_would_leave_memory_are_refused(
    name: str, changed: dict[str, Any], message: str
) -> None:
    """PyTorch trusts them: it would read elsewhere, or end the process."""
    operator = find_operator(f"aten::{name}")
    assert operator is not None
    given = dict(
        zip(
            (each.name for each in operator.parameters),
            good_arguments(f"aten::{name}", operator),
            strict=True,
        )
    )
    assert changed.keys() <= given.keys()
    with pytest.raises(HostError, match=re.escape(message)):
        operator.run([*(given | changed).values()])


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("index.Tensor_out", {"indices": (None, integers(2, -3))}),
        ("_embedding_bag.out", {"offsets": integers(0, 3), "include_last_offset": True}),
        ("floor_divide.out", {"self": LEAST, "other": integers(1)}),
        ("upsample_nearest2d.out", {"scales_h": 7 / 6, "scales_w": 8 / 5}),
        ("repeat_interleave.Tensor_out", {"output_size": 5}),
    ],
)
def test_arguments_at_the_border_are_taken(name: str, changed: dict[str, Any]) -> None:
    operator = find_operator(f"aten::{name}")
    assert operator is not None
    made = zip(operator.parameters, good_arguments(f"aten::{name}", operator), strict=True)
    given = [
        typed(changed.get(parameter.name, value), output_dtype(f"aten::{name}", parameter))
        if parameter.is_written
        else changed.get(parameter.name, value)
        for parameter, value in made
    ]
    if name == "floor_divide.out":
        given[-1] = UnsetTensor(DType.I64)
    assert operator.run(given)


def test_strides_are_those_of_a_contiguous_tensor() -> None:
    operator = find_operator("aten::as_strided_copy.out")
    assert operator is not None
    turned = HostTensor(np.arange(6, dtype=np.float32).reshape(3, 2).T, DType.F32)
    (written,) = operator.run([turned, (2, 2), (3, 1), 1, UnsetTensor(DType.F32)]).values()
    np.testing.assert_array_equal(written.array, [[2, 4], [3, 5]])  # type: ignore[attr-defined]


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


def test_a_dry_convolution() -> None:
    """It has the sizes and the errors of a real one, and does not import SymPy, which takes long."""
    code = """
import sys
import numpy as np
from pteron.dtypes import DType
from pteron.errors import HostError
from pteron.host.lookup import find_operator
from pteron.host.values import HostTensor, UnsetTensor

operator = find_operator("aten::convolution.out")
for given in (
    ((5, 6, 70, 64), (8, 6, 3, 2), False, 1),
    ((5, 6, 70, 64), (6, 4, 3, 2), True, 2),
    ((5, 7, 70, 64), (8, 6, 3, 2), False, 1),
    ((5, 6, 2, 6400), (8, 6, 9, 2), False, 1),
):
    images, weight, is_transposed, groups = given
    tensors = [HostTensor(np.zeros(shape, np.float32), DType.F32) for shape in (images, weight)]
    others = [None, (2, 1), (0, 1), (1, 1), is_transposed, (1, 0), groups, UnsetTensor(DType.F32)]
    found = []
    for run in (operator.run, operator.run_dry):
        try:
            found.append([(place, value.array.shape) for place, value in run([*tensors, *others]).items()])
        except HostError as error:
            found.append(type(error))
    assert found[0] == found[1], found
    print(found[0])
assert "torch" in sys.modules and "sympy" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("HostError") == 2
    assert "(5, 8, 34, 65)" in done.stdout
