"""Reading the methods of a program: values, tensors and their bytes, delegates, instructions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from flatbuffer_writer import (
    Field,
    Fields,
    Scalar,
    ScalarVector,
    int8,
    int32,
    int32s,
    int64,
    int64s,
    uint32,
    uint64s,
)
from program_writer import (
    SEGMENTS,
    call_of,
    chain_of,
    plan_of,
    program_bytes,
    tensor_of,
    value_of,
)

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.program import read_program
from pteron.format.records import (
    DelegateRecord,
    EValue,
    FreeCall,
    IndexList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    TensorRecord,
)


def read_values(*values: Fields) -> tuple[EValue, ...]:
    return read_program(program_bytes([plan_of(list(values))])).methods[0].values


def read_one_tensor(
    value: Fields, slots: Mapping[int, Field] | None = None, segments: bytes = b""
) -> TensorRecord:
    header_length = 32 if segments else 0
    program = read_program(program_bytes([plan_of([value])], slots, header_length, segments))
    record = program.methods[0].values[0]
    assert isinstance(record, TensorRecord)
    return record


def test_every_kind_of_value() -> None:
    values = read_values(
        Fields({0: int8(1)}),
        value_of(2, int64(-(2**62))),
        value_of(3, int8(1)),
        value_of(4, Scalar("d", 2.5)),
        value_of(6, "mean"),
        value_of(7, int64s(1, 1)),
        value_of(8, ScalarVector("d", (0.5, 1.0))),
        value_of(9, ScalarVector("B", (1, 0))),
        value_of(10, int32s(0)),
        value_of(11, int32s(0, -1)),
        value_of(2),
    )
    assert values == (
        None,
        -(2**62),
        True,
        2.5,
        "mean",
        IndexList("int", (1, 1)),
        (0.5, 1.0),
        (True, False),
        IndexList("tensor", (0,)),
        IndexList("optional_tensor", (0, -1)),
        0,
    )


@pytest.mark.parametrize(
    "values",
    [
        [value_of(10, int32s(0))],
        [value_of(10, int32s(1)), value_of(7, int64s(0))],
        [Fields({0: int8(1)}), *(value_of(11, int32s(id, id, -1)) for id in range(99))],
        [value_of(8, ScalarVector("d", (0.5,))), value_of(7, int64s(0))],
    ],
    ids=["itself", "each other", "doubled at every level", "numbers"],
)
def test_lists_contain_no_lists(values: list[Fields]) -> None:
    with pytest.raises(FormatError, match=r"values\[\d+\]\.val.* a list contains value \d+, which is a list"):
        read_values(*values)


@pytest.mark.parametrize(
    "value",
    [
        Fields({}),
        Fields({0: int8(2)}),
        value_of(12),
        value_of(7, int64s(1)),
        value_of(7, int64s(2**40)),
        value_of(10, int32s(-1)),
        value_of(11, int32s(-2)),
    ],
)
def test_values_that_are_wrong(value: Fields) -> None:
    with pytest.raises(FormatError, match=r"Program\.execution_plan\[0\]\.values\[0\]\.val"):
        read_values(value)


@pytest.mark.parametrize(
    "value",
    [
        tensor_of(slot0=int8(27)),
        tensor_of(slot1=int32(1)),
        tensor_of(slot2=int32s(2, -1)),
        tensor_of(slot2=int32s(2**31 - 1, 2**31 - 1)),
        tensor_of(slot2=int32s(*[1] * 17), slot3=bytes(range(17))),
        tensor_of(slot3=bytes([0, 0])),
        tensor_of(slot3=bytes([0])),
        tensor_of(slot5=uint32(1)),
        tensor_of(slot5=uint32(1), slot6=Fields({})),
        tensor_of(slot8=int8(3)),
        tensor_of(slot9=Fields({2: int8(1)})),
    ],
)
def test_tensors_that_are_wrong(value: Fields) -> None:
    with pytest.raises(FormatError, match=r"values\[0\]\.val\."):
        read_values(value)


def test_a_tensor_without_data() -> None:
    record = read_one_tensor(tensor_of(slot3=bytes([1, 0]), slot8=int8(1)))
    assert record == TensorRecord(
        DType.F32, (2, 3), (1, 0), "bound", None, False, False, name=None, is_external=False
    )


def test_a_place_in_an_arena_has_64_bits() -> None:
    place = Fields({0: uint32(1), 1: uint32(16), 2: uint32(3)})
    assert read_one_tensor(tensor_of(slot6=place)).allocation == (1, (3 << 32) + 16)


def test_the_largest_tensor() -> None:
    assert read_one_tensor(tensor_of(slot2=int32s(2**23, 2**23))).sizes == (2**23, 2**23)
    with pytest.raises(FormatError, match="is larger than any memory"):
        read_values(tensor_of(slot2=int32s(2**23, 2**23 + 1)))


def test_an_external_tensor_is_found_by_name() -> None:
    record = read_one_tensor(tensor_of(slot5=uint32(9), slot9=Fields({1: "layer.weight", 2: int8(1)})))
    assert (record.is_external, record.name, record.data, record.is_constant) == (
        True,
        "layer.weight",
        None,
        True,
    )


def test_constants_inside_the_flatbuffer() -> None:
    buffers = [Fields({}), Fields({0: bytes(range(30))})]
    record = read_one_tensor(tensor_of(slot5=uint32(1)), {2: buffers})
    assert record.data == memoryview(bytes(range(24)))
    assert record.is_constant
    with pytest.raises(FormatError, match="23 bytes where 24 are needed"):
        read_one_tensor(tensor_of(slot5=uint32(1)), {2: [Fields({}), Fields({0: bytes(23)})]})


def test_constants_and_initial_values_in_segments() -> None:
    area = bytes(range(48))
    subsegments = Fields({0: uint32(1), 1: uint64s(0, 0, 16, 41)})
    constant = read_one_tensor(tensor_of(slot5=uint32(2)), {4: SEGMENTS, 5: subsegments}, area)
    assert constant.data == memoryview(area[24:48])
    state = tensor_of(slot5=uint32(1), slot6=Fields({}))
    initial = read_one_tensor(state, {4: SEGMENTS, 6: [subsegments]}, area)
    assert initial.data == memoryview(area[8:32])
    assert (initial.is_mutable, initial.is_constant) == (True, False)
    # Without constants exporters write one placeholder, and need no segment.
    none = Fields({0: uint32(9), 1: uint64s(0)})
    assert read_program(program_bytes([plan_of([])], {5: none})).methods[0].values == ()
    for index in (3, 4, 2**32 - 1):
        with pytest.raises(FormatError, match="data_buffer_idx"):
            read_one_tensor(tensor_of(slot5=uint32(index)), {4: SEGMENTS, 5: subsegments}, area)


def test_delegates_inline_and_in_segments() -> None:
    def delegate(location: int, index: int) -> Fields:
        return Fields({0: "VulkanBackend", 1: Fields({0: int8(location), 1: uint32(index)})})

    def read(*delegates: Fields) -> tuple[DelegateRecord, ...]:
        plan = plan_of([], slot7=list(delegates))
        slots: dict[int, Field] = {3: [Fields({0: b"the delegate"})], 4: SEGMENTS}
        return read_program(program_bytes([plan], slots, 32, bytes(range(48)))).methods[0].delegates

    inline, segment = read(delegate(0, 0), delegate(1, 1))
    assert inline.blob == memoryview(b"the delegate")
    assert segment.blob == bytes(range(8, 48))
    for wrong in (delegate(0, 1), delegate(1, 2), delegate(2, 0), Fields({0: "x"}), Fields({})):
        with pytest.raises(FormatError, match=r"delegates\[0\]"):
            read(wrong)


def test_instructions() -> None:
    plan = plan_of(
        [Fields({0: int8(1)})] * 3,
        slot3=int32s(2, 0),
        slot4=int32s(1),
        slot6=[Fields({0: "aten::add", 1: "out"}), Fields({0: "aten::copy_"})],
        slot8=int64s(0, 2048),
        slot5=chain_of(
            call_of(4, int32(0), int32(4)),
            call_of(1, int32(1), int32s(0, 1, 2, 2)),
            call_of(3, int32(1), int32(2)),
            call_of(5, int32(2)),
        ),
    )
    method = read_program(program_bytes([plan])).methods[0]
    assert method.instructions == (
        JumpFalseCall(0, 4),
        KernelCall(1, (0, 1, 2, 2)),
        MoveCall(1, 2),
        FreeCall(2),
    )
    assert method.operators == ("aten::add.out", "aten::copy_")
    assert (method.inputs, method.outputs) == ((2, 0), (1,))


@pytest.mark.parametrize(
    "call",
    [
        call_of(1, int32(1), int32s(0)),
        call_of(1, int32(0), int32s(0, 1)),
        call_of(2, int32(0), int32s(0)),
        call_of(3, int32(0), int32(1)),
        call_of(4, int32(0), int32(2)),
        call_of(5, int32(1)),
        call_of(6),
        Fields({0: int8(1)}),
        Fields({}),
    ],
)
def test_instructions_that_are_wrong(call: Fields) -> None:
    plan = plan_of([Fields({0: int8(1)})], slot6=[Fields({0: "aten::add"})], slot5=chain_of(call))
    with pytest.raises(FormatError, match=r"execution_plan\[0\]\.chains\[0\]\.instructions\[0\]\.instr_args"):
        read_program(program_bytes([plan]))


@pytest.mark.parametrize(
    ("plans", "complaint"),
    [
        ([plan_of([]), plan_of([])], "two methods are called 'forward'"),
        ([Fields({})], "no name"),
        ([plan_of([], slot5=chain_of() * 2)], "2 chains"),
        ([plan_of([], slot3=int32s(0))], "0 is not an index into 0 values"),
        ([plan_of([Fields({0: int8(1)})], slot3=int32s(0, 0))], r"inputs.*\[0, 0\] has a value twice"),
        ([plan_of([], slot4=int32s(-1))], "-1 is not an index into 0 values"),
    ],
)
def test_methods_that_are_wrong(plans: list[Fields], complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        read_program(program_bytes(plans))
