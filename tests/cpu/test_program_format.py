"""Reading `.pte` programs: exported ones, and ones written by hand to be unusual or wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from flatbuffer_writer import (
    Fields,
    uint32,
    uint64,
    write_flatbuffer,
)
from program_writer import SEGMENTS, program_bytes

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.program import METADATA_KEY, read_program
from pteron.format.program_writer import StreamedData, write_program
from pteron.format.records import (
    DelegateCall,
    IndexList,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
    PortRecord,
    ProgramFile,
    TensorRecord,
)
from pteron.format.source import open_bytes

FIXTURES = Path(__file__).parent.parent / "fixtures"
PROGRAMS = FIXTURES / "programs"


# --- exported programs -------------------------------------------------------------------------


def test_a_language_model_has_a_forward_method_and_constant_methods() -> None:
    path = FIXTURES / "models" / "tiny_llama_q4_emb4.pte"
    program = read_program(path)
    assert (program.name, program.version, program.size) == (str(path), 0, path.stat().st_size)
    methods = {method.name: method for method in program.methods}
    assert len(methods) == 10
    forward = methods["forward"]
    assert [tensor(forward, index).dtype for index in forward.inputs] == [DType.I64, DType.I64]
    assert tensor(forward, forward.inputs[0]).dynamism == "bound"
    assert forward.instructions == (DelegateCall(0, (*forward.inputs, *forward.outputs)),)
    assert [delegate.backend for delegate in forward.delegates] == ["VulkanBackend"]
    assert forward.delegates[0].blob[4:8] == memoryview(b"VH00")
    vocabulary = methods["get_vocab_size"]
    assert vocabulary.instructions == ()
    assert isinstance(vocabulary.values[vocabulary.outputs[0]], int)
    assert all(len(key) == 64 and len(data) > 0 for key, data in program.named_data.items())


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/*.pte")), ids=lambda path: path.stem)
def test_every_exported_program_is_read_alike_from_a_path_and_from_bytes(path: Path) -> None:
    by_path, by_bytes = read_program(path), read_program(path.read_bytes(), name=str(path))
    assert by_path == by_bytes
    assert read_program(bytearray(path.read_bytes()), "x").methods == by_path.methods


def test_control_flow_and_host_operators() -> None:
    method = forward_of("cond")
    assert "aten::addmm.out" in method.operators
    kinds = {type(instruction) for instruction in method.instructions}
    assert kinds == {JumpFalseCall, KernelCall, MoveCall, DelegateCall}
    constant = next(value for value in method.values if isinstance(value, TensorRecord) and value.is_constant)
    assert constant.data is not None
    assert len(constant.data) == 4 * np.prod(constant.sizes)
    assert any(value == IndexList("int", (8, 9)) for value in method.values)


def test_a_mutable_buffer_has_an_initial_value() -> None:
    method = forward_of("mutable_buffer_host")
    (state,) = (value for value in method.values if isinstance(value, TensorRecord) and value.is_mutable)
    assert not state.is_constant
    assert state.name == "state"
    assert state.data is not None
    assert len(state.data) == 4 * np.prod(state.sizes)
    assert "aten::copy_" in method.operators


@pytest.mark.parametrize("name", ["inline_delegate", "inline_constants", "no_segments"])
def test_delegates_are_found_wherever_they_are_stored(name: str) -> None:
    method = forward_of(name)
    assert [delegate.blob[4:8] for delegate in method.delegates] == [b"VH00"]


def test_several_methods() -> None:
    methods = read_program(PROGRAMS / "multi_method.pte").methods
    assert len(methods) > 1
    assert len({method.name for method in methods}) == len(methods)


def forward_of(name: str) -> MethodRecord:
    return read_program(PROGRAMS / f"{name}.pte").methods[0]


def tensor(method: MethodRecord, index: int) -> TensorRecord:
    value = method.values[index]
    assert isinstance(value, TensorRecord)
    return value


# --- the file itself ---------------------------------------------------------------------------


def test_a_truncated_file_is_refused_and_named() -> None:
    data = (FIXTURES / "models" / "tiny_llama_q4_emb4.pte").read_bytes()
    for size in (4, 10, 30, 50, 1000, len(data) // 2, len(data) - 1):
        with pytest.raises(FormatError, match=r"cut\.pte"):
            read_program(data[:size], "cut.pte")


def test_bytes_are_viewed_and_not_copied() -> None:
    data = bytearray(b"abc")
    file = open_bytes(data, "here")
    data[0] = ord("z")
    assert file.view == memoryview(b"zbc")
    assert file.view.readonly


# --- programs written by hand ------------------------------------------------------------------


def test_segments_outside_the_file() -> None:
    for offset, size in ((0, 49), (48, 1), (2**64 - 1, 1), (0, 2**64 - 1)):
        outside = [Fields({0: uint64(offset), 1: uint64(size)})]
        with pytest.raises(FormatError, match=r"Program\.segments\[0\]\.size"):
            read_program(program_bytes([], {4: outside}, 32, bytes(48)))


def test_named_data_are_segments() -> None:
    area = bytes(range(48))
    names = [Fields({0: "a"}), Fields({0: "b", 1: uint32(1)})]
    assert read_program(program_bytes([], {4: SEGMENTS, 7: names}, 32, area)).named_data == {
        "a": area[:8],
        "b": area[8:],
    }
    for wrong in ([names[0], names[0]], [Fields({0: "c", 1: uint32(2)})], [Fields({})]):
        with pytest.raises(FormatError, match="named_data"):
            read_program(program_bytes([], {4: SEGMENTS, 7: wrong}, 32, area))


@pytest.mark.parametrize("header_length", [24, 32, 64])
def test_headers_of_every_length(header_length: int) -> None:
    area = bytes(range(48))
    program = read_program(
        program_bytes([], {0: uint32(3), 4: SEGMENTS, 7: [Fields({0: "a"})]}, header_length, area)
    )
    assert program.version == 3
    assert program.named_data["a"] == area[:8]


@pytest.mark.parametrize(
    "header",
    [
        (b"eh00", 16, 100, 0, 0),
        (b"eh00", 32, 7, 0, 0),
        (b"eh00", 32, 2**64 - 1, 0, 0),
        (b"eh00", 2**32 - 1, 60, 0, 0),
        (b"eh00", 32, 60, 2**63, 0),
        (b"eh00", 32, 60, 60, 2**64 - 1),
        (b"eh00", 32, 60, 10, 0),
    ],
)
def test_headers_that_are_wrong(header: tuple[bytes, int, int, int, int]) -> None:
    data = write_flatbuffer(Fields({}), b"ET12", header=pack("<4sIQQQ", *header)).ljust(120, b"\0")
    with pytest.raises(FormatError, match=r"x\.pte: the header"):
        read_program(data, "x.pte")


def with_metadata(name: str = "forward", **changed: object) -> ProgramFile:
    """A program that `pteron.compile` could have written: a state, an input that is written, an output."""
    tensor = TensorRecord(
        DType.F32,
        (4,),
        (0,),
        "bound",
        None,
        is_constant=False,
        is_mutable=False,
        name=None,
        is_external=False,
    )
    method = MethodRecord(name, (tensor,) * 5, (0, 1), (2, 3, 4), (), (), ())
    metadata = {
        "states": ["count"],
        "inputs": [{"name": "x", "min": [2]}],
        "written": [0],
        "outputs": [{"name": "y"}],
        **changed,
    }
    text, file = json.dumps(metadata).encode(), io.BytesIO()
    write_program(file, [method], {METADATA_KEY: StreamedData(len(text), lambda: [text])})
    return read_program(file.getvalue(), "x.pte")


def test_names_and_least_sizes_of_a_compiled_module() -> None:
    (method,) = with_metadata().methods
    x = PortRecord("x", (2,), (1,), ("",))
    assert method.input_ports == (PortRecord("state.count"), x)
    assert method.output_ports == (PortRecord("state.count"), x, PortRecord("y"))
    assert with_metadata("get_eos_ids").methods[0].input_ports == ()
    for wrong, complaint in (
        ({"inputs": [{"name": "x", "min": [5]}]}, r"x is at least \[5\] and at most \[4\]"),
        ({"inputs": [{"name": "x", "min": [-1]}]}, r"x is at least \[-1\]"),
        ({"inputs": [{"name": "x", "min": [1, 1]}]}, r"x is at least \[1, 1\]"),
        ({"outputs": []}, "2 for 3 of the method"),
        ({"written": [1]}, "the inputs in pteron.json are invalid"),
    ):
        with pytest.raises(FormatError, match=complaint):
            with_metadata(**wrong)


def test_an_empty_program_has_no_methods() -> None:
    assert read_program(program_bytes([]), "empty") == ProgramFile("empty", 0, (), {}, len(program_bytes([])))
