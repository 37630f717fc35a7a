"""Reading `.bpte` files: a program bundled with test cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flatbuffer_writer import Field, Fields, Scalar, int8, int32s, int64, write_flatbuffer

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.bundled import BundledFile, BundledTensor, is_bundled, read_bundled
from pteron.format.program import read_program
from pteron.format.source import open_bytes

PROGRAMS = Path(__file__).parent.parent / "fixtures" / "programs"


def bundle(values: list[Fields], program: bytes = b"program", method: str = "forward") -> BundledFile:
    case = Fields({0: values, 1: values[:1]})
    root = Fields({1: [Fields({0: method, 1: [case]})], 2: program})
    return read_bundled(write_flatbuffer(root, b"BP08"), "x.bpte")


def value_of(kind: int, fields: dict[int, Field]) -> Fields:
    return Fields({0: int8(kind), 1: Fields(fields)})


def tensor_of(dtype: int, sizes: tuple[int, ...], data: bytes, dim_order: tuple[int, ...]) -> Fields:
    return value_of(1, {0: int8(dtype), 1: int32s(*sizes), 2: data, 3: bytes(dim_order)})


def array_of(value: object) -> BundledTensor:
    assert isinstance(value, BundledTensor)
    return value


def test_an_exported_bundle_holds_its_program_and_cases() -> None:
    path = PROGRAMS / "bundled.bpte"
    assert is_bundled(open_bytes(path).view)
    assert not is_bundled(open_bytes(PROGRAMS / "bundled.pte").view)
    file = read_bundled(path)
    program = read_program(file.program, str(path))
    assert {suite.method for suite in file.suites} <= {method.name for method in program.methods}
    for suite in file.suites:
        method = next(method for method in program.methods if method.name == suite.method)
        assert suite.cases
        for case in suite.cases:
            assert len(case.inputs) == len(method.inputs)
            assert len(case.outputs) == len(method.outputs)


def test_scalars_and_tensors() -> None:
    data = np.arange(6, dtype=np.float32)
    file = bundle(
        [
            tensor_of(6, (2, 3), data.tobytes() + b"more", (1, 0)),
            value_of(2, {0: int64(-4)}),
            value_of(3, {0: int8(1)}),
            value_of(4, {0: Scalar("d", 0.25)}),
            tensor_of(11, (3,), bytes([0, 1, 200, 1]), (0,)),
            tensor_of(15, (), b"\x80\x3f", ()),
        ]
    )
    assert file.program == memoryview(b"program")
    (case,) = file.suites[0].cases
    assert file.suites[0].method == "forward"
    assert case.inputs[1:4] == (-4, True, 0.25)
    columns_first = array_of(case.inputs[0])
    np.testing.assert_array_equal(columns_first.array, data.reshape(3, 2).T)
    np.testing.assert_array_equal(array_of(case.inputs[4]).array, np.array([False, True, True]))
    brain = array_of(case.inputs[5])
    assert (brain.dtype, brain.array.shape, int(brain.array)) == (DType.BF16, (), 0x3F80)
    np.testing.assert_array_equal(array_of(case.outputs[0]).array, columns_first.array)


def test_a_dimension_order_of_rank_four() -> None:
    logical = np.arange(2 * 3 * 5 * 7, dtype=np.int32).reshape(2, 3, 5, 7)
    order = (0, 2, 3, 1)
    stored = np.ascontiguousarray(logical.transpose(order)).tobytes()
    value = bundle([tensor_of(3, logical.shape, stored, order)]).suites[0].cases[0].inputs[0]
    np.testing.assert_array_equal(array_of(value).array, logical)


@pytest.mark.parametrize(
    "wrong",
    [
        Fields({}),
        value_of(5, {}),
        tensor_of(6, (2,), bytes(7), (0,)),
        tensor_of(6, (-2,), bytes(8), (0,)),
        tensor_of(6, (2,), bytes(8), (1,)),
        tensor_of(99, (2,), bytes(8), (0,)),
    ],
)
def test_values_that_are_wrong(wrong: Fields) -> None:
    with pytest.raises(
        FormatError, match=r"x\.bpte: BundledProgram\.method_test_suites\[0\]\.test_cases\[0\]"
    ):
        bundle([wrong])


def test_bundles_that_are_wrong() -> None:
    with pytest.raises(FormatError, match="no program"):
        bundle([], program=b"")
    with pytest.raises(FormatError, match="name no method"):
        bundle([], method="")
    with pytest.raises(FormatError, match="expected the identifier 'BP08'"):
        read_bundled(PROGRAMS / "mlp.pte")
