"""The bytes of a `.bpte` file enter; the program in it and its test cases leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pteron.dtypes import DType
from pteron.format.flatbuffer import INT64, Table, open_root
from pteron.format.source import Source, contents, open_bytes
from pteron.format.tensor_layout import read_layout

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_IDENTIFIER = b"BP08"


@dataclass(frozen=True, slots=True)
class BundledTensor:
    """A tensor's elements in logical order; bf16 elements are carried as their raw 16 bits."""

    dtype: DType
    array: Array


BundledValue: TypeAlias = int | bool | float | BundledTensor


@dataclass(frozen=True, slots=True)
class TestCase:
    """What to call a method with, and what it should return."""

    __test__ = False  # pytest collects classes by this name

    inputs: tuple[BundledValue, ...]
    outputs: tuple[BundledValue, ...]


@dataclass(frozen=True, slots=True)
class TestSuite:
    __test__ = False

    method: str
    cases: tuple[TestCase, ...]


@dataclass(frozen=True, slots=True)
class BundledFile:
    """A `.pte` program, as a view of its bytes, with tests for its methods."""

    name: str
    program: memoryview
    suites: tuple[TestSuite, ...]


def is_bundled(view: memoryview) -> bool:
    """Whether these are the bytes of a bundled program."""
    return contents(view[4:8]) == _IDENTIFIER


def read_bundled(source: Source, name: str | None = None) -> BundledFile:
    """Read a bundled program; `name` is used in messages (by default, its path)."""
    file = open_bytes(source, name)
    root = open_root(file.view, file.name, _IDENTIFIER, "BundledProgram")
    program = root.blob(2, "program")
    if not program:
        raise root.error("program", "there is no program in the bundle")
    suites = root.tables(1, "method_test_suites")
    return BundledFile(file.name, program, tuple(_suite(suite) for suite in suites))


def _suite(table: Table) -> TestSuite:
    method = table.text(0, "method_name")
    if not method:
        raise table.error("method_name", "the tests name no method")
    return TestSuite(method, tuple(_case(case) for case in table.tables(1, "test_cases")))


def _case(table: Table) -> TestCase:
    inputs = tuple(_value(value) for value in table.tables(0, "inputs"))
    return TestCase(inputs, tuple(_value(value) for value in table.tables(1, "expected_outputs")))


def _value(table: Table) -> BundledValue:
    kind, value = table.union(0, "val")
    if value is not None:
        match kind:
            case 1:
                return _tensor(value)
            case 2:
                return value.integer(0, "int_val", INT64)
            case 3:
                return value.boolean(0, "bool_val")
            case 4:
                return value.double(0, "double_val")
    raise table.error("val", f"no value of a known kind (type {kind})")


def _tensor(table: Table) -> BundledTensor:
    layout = read_layout(table, dtype_slot=0, sizes_slot=1, dim_order_slot=3)
    data = table.blob(2, "data")
    if len(data) < layout.byte_size:
        raise table.error("data", f"{len(data)} bytes where {layout.byte_size} are needed")
    if layout.dtype is DType.BOOL:
        # Any nonzero byte means true, but NumPy's bool must be 0 or 1.
        flat: Array = np.array(table.booleans(2, "data")[: layout.byte_size], np.bool_)
    else:
        flat = np.frombuffer(data[: layout.byte_size], layout.dtype.numpy)
    in_memory = flat.reshape([layout.sizes[dimension] for dimension in layout.dim_order])
    return BundledTensor(layout.dtype, in_memory.transpose(np.argsort(layout.dim_order).astype(int)))
