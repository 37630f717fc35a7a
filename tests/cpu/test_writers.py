"""Programs that Pteron writes: read back by Pteron's reader and by ExecuTorch's own."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from pathlib import Path
from struct import pack

import numpy as np
import pytest

from pteron.errors import PteronError
from pteron.format.delegate import read_delegate
from pteron.format.delegate_writer import write_delegate
from pteron.format.flatbuffer import DOUBLE, INT8, INT64, UINT8, open_root
from pteron.format.flatbuffer_writer import Scalar, Table, Vector, write_flatbuffer
from pteron.format.program import read_program
from pteron.format.program_writer import StreamedData, write_program
from pteron.format.records import DelegateGraph, DelegateRecord, MethodRecord, VkSymInt, VkValueList

PROGRAMS = Path(__file__).parents[1] / "fixtures/programs"


def test_fields_of_every_kind_are_read_back() -> None:
    inner: Table = {0: "text ü", 1: Scalar(INT64, -5), 2: Scalar(UINT8, 7), 3: Vector(DOUBLE, [0.5, -1.5])}
    data = write_flatbuffer({0: inner, 2: [inner, {}, inner], 3: b"abc", 5: Scalar(INT8, -1)}, b"TEST", 32)
    root = open_root(memoryview(bytes(data)), "test", b"TEST", "root")
    assert (root.integer(5, "five", INT8), bytes(root.blob(3, "three")), root.table(1, "one")) == (
        -1,
        b"abc",
        None,
    )
    for table in (root.required_table(0, "zero"), root.tables(2, "two")[2]):
        assert (table.text(0, "text"), table.integer(1, "long", INT64)) == ("text ü", -5)
        assert (table.integer(2, "byte", UINT8), table.doubles(3, "doubles")) == (7, (0.5, -1.5))
    assert root.tables(2, "two")[1].text(0, "text") == ""


@pytest.mark.parametrize("text", ["", "a", "abc", "abcdefg"])
def test_fields_are_aligned(text: str) -> None:
    """Readers in C++ take them where they are."""
    table: Table = {0: text, 1: Scalar(UINT8, 7), 2: Scalar(INT64, -5), 3: Vector(DOUBLE, [0.5, -1.5])}
    data = bytes(write_flatbuffer({0: text, 1: [table, table]}, b"TEST"))
    assert data.index(pack("<q", -5)) % 8 == 0
    assert data.index(pack("<2d", 0.5, -1.5)) % 8 == 0


def test_a_size_and_reserved_bytes_before_the_tables() -> None:
    """As of a BundledProgram and of a program with a header."""
    table: Table = {0: "text", 1: Scalar(INT64, -5), 2: [{0: Scalar(INT64, 9)}]}
    data = bytes(write_flatbuffer(table, b"TEST", 32, size_prefixed=True))
    assert int.from_bytes(data[:4], "little") == len(data) - 4
    assert data[12:44] == bytes(32)
    root = open_root(memoryview(data)[4:], "test", b"TEST", "root")
    assert (root.text(0, "zero"), root.integer(1, "one", INT64)) == ("text", -5)
    assert root.tables(2, "two")[0].integer(0, "nine", INT64) == 9


def test_tables_of_one_form_share_their_description() -> None:
    """A large file has many tables of few forms."""
    sizes = [len(write_flatbuffer({0: [{0: Scalar(INT64, 1)}] * count}, b"TEST")) for count in (1, 11, 21)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] <= 10 * 20


def test_values_of_every_kind_are_read_back() -> None:
    values = (None, True, -(2**40), 0.5, "none", (1, -2), (1, 0.5), (0.5, 1), (True, False), (), VkSymInt(3))
    graph = DelegateGraph("x", (), (*values, VkValueList((0, 1))), (), (), ())
    found = read_delegate(memoryview(write_delegate(graph)), "x", lambda key: None)
    assert found.values == graph.values
    assert [type(value) for value in found.values] == [type(value) for value in graph.values]
    assert all(type(item) is bool for item in found.values[8])  # type: ignore[union-attr]  # a tuple


WRITABLE = ["attention_cache", "mlp_dynamic", "multi_method", "input_order", "letters"]


def rewritten(path: Path) -> bytes:
    """A program, read and written again."""
    program = read_program(path)
    methods = []
    for method in program.methods:
        delegates = tuple(
            replace(delegate, blob=memoryview(write_delegate(graph)))
            for delegate in method.delegates
            for graph in [read_delegate(delegate.blob, "delegate", program.named_data.get)]
        )
        methods.append(replace(method, delegates=delegates))
    data = {key: StreamedData(len(view), partial(list, [view])) for key, view in program.named_data.items()}
    file = io.BytesIO()
    write_program(file, methods, data)
    return file.getvalue()


@pytest.mark.parametrize("name", WRITABLE)
def test_a_program_written_again_is_the_same(name: str) -> None:
    path = PROGRAMS / f"{name}.pte"
    before, after = read_program(path), read_program(rewritten(path))
    assert {key: bytes(view) for key, view in before.named_data.items()} == {
        key: bytes(view) for key, view in after.named_data.items()
    }
    for old, new in zip(before.methods, after.methods, strict=True):
        assert replace(old, delegates=()) == replace(new, delegates=())
        for delegates in zip(old.delegates, new.delegates, strict=True):
            graphs = [
                read_delegate(delegate.blob, "delegate", file.named_data.get)
                for delegate, file in zip(delegates, (before, after), strict=True)
            ]
            assert graphs[0] == graphs[1]


@pytest.mark.parametrize("name", WRITABLE[:3])
def test_executorch_reads_it(name: str) -> None:
    pytest.importorskip("executorch.exir")
    from executorch.backends.vulkan.serialization.vulkan_graph_serialize import VulkanDelegateHeader
    from executorch.exir._serialize._program import deserialize_pte_binary

    path = PROGRAMS / f"{name}.pte"
    old, new = (deserialize_pte_binary(data) for data in (path.read_bytes(), rewritten(path)))
    for before, after in zip(old.program.execution_plan, new.program.execution_plan, strict=True):
        assert (before.name, before.values, before.inputs) == (after.name, after.values, after.inputs)
        assert before.non_const_buffer_sizes == after.non_const_buffer_sizes
        assert [chain.instructions for chain in before.chains] == [
            chain.instructions for chain in after.chains
        ]
    assert old.named_data is not None
    assert new.named_data is not None
    assert set(old.named_data.pte_data) == set(new.named_data.pte_data)
    blob = new.program.backend_delegate_data[0].data
    assert VulkanDelegateHeader.from_bytes(blob[:30]).is_valid()


def test_executorch_runs_its_constant_methods() -> None:
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    method = MethodRecord("get_eos_ids", (3, 7), (), (0, 1), (), (), ())
    file = io.BytesIO()
    write_program(file, [method], {"key": StreamedData(1 << 20)})
    program = runtime.load_program(file.getvalue())
    assert program.method_names == {"get_eos_ids"}
    assert list(program.load_method("get_eos_ids").execute([])) == [3, 7]


def test_each_method_has_its_own_delegates() -> None:
    names = (b"first", b"second", b"third")
    first, second, third = (DelegateRecord("VulkanBackend", memoryview(name)) for name in names)
    methods = [
        MethodRecord("two", (), (), (), (), (), (first, second)),
        MethodRecord("one", (), (), (), (), (), (third,)),
    ]
    file = io.BytesIO()
    write_program(file, methods, {"key": StreamedData(3)})
    found = read_program(file.getvalue())
    blobs = [[bytes(each.blob) for each in method.delegates] for method in found.methods]
    assert blobs == [[b"first", b"second"], [b"third"]]
    assert bytes(found.named_data["key"]) == bytes(3)


@pytest.mark.parametrize("found", [4, 12])
def test_data_of_another_size_are_refused(found: int) -> None:
    """Longer ones would be written over what follows."""
    wrong = StreamedData(8, lambda: [np.zeros(found // 4, np.float32)])
    with pytest.raises(PteronError, match=f"{found} bytes, but 8 were announced"):
        write_program(io.BytesIO(), [], {"key": wrong})


@pytest.mark.parametrize("sizes", [(0,), (5, 0), (128, 0, 0), (0, 5)])
@pytest.mark.parametrize("zeros", [False, True])
def test_empty_data_are_read_back(sizes: tuple[int, ...], zeros: bool) -> None:
    """Also at the end, where they leave no byte in the file."""
    method = MethodRecord("forward", (1,), (), (0,), (), (), ())
    file = io.BytesIO()
    data = {
        f"key {place}": StreamedData(size, None if zeros else partial(list, [b"\1" * size]))
        for place, size in enumerate(sizes)
    }
    write_program(file, [method], data)
    found = read_program(file.getvalue()).named_data
    assert [bytes(view) for view in found.values()] == [bytes([not zeros]) * size for size in sizes]
