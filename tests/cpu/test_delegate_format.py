"""Reading delegate graphs: exported ones, and ones written by hand to be unusual or wrong."""

from __future__ import annotations

from pathlib import Path
from struct import pack

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
    uint64,
    write_flatbuffer,
)

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.delegate import read_delegate
from pteron.format.program import read_program
from pteron.format.records import ConstantRecord, DelegateGraph, NodeRecord, VkSymInt, VkTensor, VkValueList
from pteron.format.weights import read_weights

FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMED = 2**64 - 1


def exported(name: str) -> DelegateGraph:
    program = read_program(FIXTURES / f"{name}.pte")
    return read_delegate(program.methods[0].delegates[0].blob, name, program.named_data.get)


def test_a_language_model() -> None:
    graph = exported("models/tiny_llama_q4_emb4")
    names = [node.name for node in graph.nodes]
    assert names.count("sdpa_with_kv_cache.default") == 2
    assert "et_vk.linear_q4gsw.default" in names
    assert len(graph.input_ids) == 2
    assert graph.nodes[-1].args[-1] == graph.output_ids[0]
    assert all(
        constant.data is not None and len(constant.data) == constant.length for constant in graph.constants
    )
    assert any(isinstance(value, VkSymInt) for value in graph.values)


def test_constants_in_weight_files() -> None:
    graph = exported("programs/external_weights")
    assert all(constant.key and constant.data is None for constant in graph.constants)
    weights: dict[str, memoryview] = {}
    for path in sorted((FIXTURES / "programs").glob("external_weights.*.ptd")):
        weights.update(read_weights(path).data)
    program = read_program(FIXTURES / "programs" / "external_weights.pte")
    graph = read_delegate(program.methods[0].delegates[0].blob, "x", weights.get)
    assert all(constant.data is not None for constant in graph.constants)


def value_of(kind: int, *fields: Field) -> Fields:
    return Fields({0: int8(kind), 1: Fields(dict(enumerate(fields)))})


def blob_of(slots: dict[int, Field], inline: bytes = b"", inline_size: int | None = None) -> bytes:
    graph = write_flatbuffer(Fields({0: "0", **slots}), b"VK00")
    size = len(inline) if inline_size is None else inline_size
    return pack("<4x4sHIIIQ2x", b"VH00", 30, 32, len(graph), 32 + len(graph), size) + graph + inline


def read(slots: dict[int, Field], inline: bytes = b"", inline_size: int | None = None) -> DelegateGraph:
    return read_delegate(
        memoryview(blob_of(slots, inline, inline_size)), "x.pte", {"weight": memoryview(b"12345678")}.get
    )


def test_every_kind_of_value() -> None:
    values = [
        Fields({0: int8(1)}),
        value_of(2, int64(-5)),
        value_of(3, Scalar("d", 0.5)),
        value_of(4, int8(1)),
        value_of(6, int64s(2**40, -1)),
        value_of(7, ScalarVector("d", (1.5,))),
        value_of(8, ScalarVector("B", (0, 1))),
        value_of(9, int32s(0, 1)),
        value_of(10, "none"),
        value_of(11, int32(3)),
    ]
    assert read({2: values}).values == (
        None,
        -5,
        0.5,
        True,
        (2**40, -1),
        (1.5,),
        (False, True),
        VkValueList((0, 1)),
        "none",
        VkSymInt(3),
    )


def test_an_absent_id_is_zero_and_minus_one_is_none() -> None:
    dims = ScalarVector("I", (2,))
    absent = Fields({0: int8(5), 1: Fields({0: int8(2), 1: dims})})
    none = value_of(5, int8(4), dims, int32(-1), int32(-1), int8(0), int8(0), int8(5))
    graph = read({2: [absent, none], 5: [Fields({0: uint64(0), 1: uint64(2)})]}, inline=b"ab")
    assert graph.values == (
        VkTensor(DType.I8, (2,), constant_id=0, memory_id=0),
        VkTensor(DType.F16, (2,), constant_id=None, memory_id=None),
    )


def test_nodes_inputs_and_outputs() -> None:
    nulls = [Fields({0: int8(1)})] * 3
    chain = [Fields({0: uint32(9), 1: "aten.add.Tensor", 2: int32s(0, 1, 2)})]
    graph = read({1: chain, 2: nulls, 3: ScalarVector("I", (1, 0)), 4: ScalarVector("I", (2,))})
    assert graph.nodes == (NodeRecord("aten.add.Tensor", (0, 1, 2), 9),)
    assert (graph.input_ids, graph.output_ids) == ((1, 0), (2,))


def test_constants_are_named_or_inline() -> None:
    def constants(offset: int, length: int, *key: str) -> Fields:
        return Fields({0: uint64(offset), 1: uint64(length), **dict(enumerate(key, 2))})

    found = read(
        {5: [constants(NAMED, 6, "weight"), constants(NAMED, 2**40, "absent"), constants(1, 2)]}, b"abcd"
    )
    assert found.constants == (
        ConstantRecord("weight", 6, memoryview(b"123456")),
        ConstantRecord("absent", 2**40, None),
        ConstantRecord(None, 2, memoryview(b"bc")),
    )
    # A header that gives no size leaves the rest of the blob to the constants.
    assert read({5: [constants(0, 4)]}, b"abcd", inline_size=0).constants[0].data == memoryview(b"abcd")
    for wrong in (constants(NAMED, 9, "weight"), constants(NAMED, 1), constants(3, 2), constants(0, 2**63)):
        with pytest.raises(FormatError, match=r"x\.pte: VkGraph\.constants\[0\]"):
            read({5: [wrong]}, b"abcd")


@pytest.mark.parametrize(
    "slots",
    [
        {2: [Fields({})]},
        {2: [Fields({0: int8(2)})]},
        {2: [value_of(12)]},
        {2: [value_of(9, int32s(1))]},
        {2: [value_of(9, int32s(-1))]},
        {2: [value_of(5, int8(9), int32s(), int32(-1))]},
        {2: [value_of(5, int8(127), int32s(), int32(-1))]},
        {2: [value_of(5, int8(5), ScalarVector("I", (2**32 - 1, 2**32 - 1)), int32(-1))]},
        {2: [value_of(5, int8(5), int32s(*[1] * 17), int32(-1))]},
        {2: [value_of(5, int8(5), int32s(1))]},
        {
            2: [value_of(5, int8(5), int32s(3), int32(0))],
            5: [Fields({0: uint64(NAMED), 1: uint64(8), 2: "weight"})],
        },
        {1: [Fields({1: "aten.add.Tensor", 2: int32s(0)})]},
        {1: [Fields({1: "aten.add.Tensor", 2: int32s()})]},
        {1: [Fields({1: "aten.add.Tensor"})]},
        {3: int32s(0)},
        {4: int32s(0)},
    ],
)
def test_graphs_that_are_wrong(slots: dict[int, Field]) -> None:
    with pytest.raises(FormatError, match=r"x\.pte: VkGraph\."):
        read(slots)


@pytest.mark.parametrize(
    ("position", "content"),
    [
        (4, b"VH01"),
        (8, pack("<H", 29)),
        (10, pack("<I", 0)),
        (10, pack("<I", 2**32 - 1)),
        (14, pack("<I", 2**32 - 1)),
        (14, pack("<I", 0)),
        (18, pack("<I", 0)),
        (18, pack("<I", 2**32 - 1)),
        (22, pack("<Q", 2**64 - 1)),
        (36, b"VK01"),
    ],
)
def test_headers_that_are_wrong(position: int, content: bytes) -> None:
    blob = bytearray(blob_of({}, b"abcd"))
    blob[position : position + len(content)] = content
    with pytest.raises(FormatError, match=r"x\.pte: "):
        read_delegate(memoryview(blob), "x.pte", lambda key: None)


@pytest.mark.parametrize("size", [0, 29, 33, 40])
def test_blobs_that_are_too_short(size: int) -> None:
    with pytest.raises(FormatError, match=r"x\.pte: "):
        read_delegate(memoryview(blob_of({})[:size]), "x.pte", lambda key: None)
