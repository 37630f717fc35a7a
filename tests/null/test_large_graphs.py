"""What a file costs grows with its size: counted, since a clock would count what else the machine does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest
from flatbuffer_writer import (
    Field,
    Fields,
    Numbers,
    int8,
    int32,
    int32s,
    uint32,
    uint64,
    write_flatbuffer,
)
from program_writer import call_of, chain_of, plan_of, program_bytes, tensor_of

import pteron
from pteron.ops import Target
from pteron.plan import Compiled
from pteron.runtime import specs
from pteron.runtime.specs import describe

SHAPE = (4, 3)


class Drawing:
    """A graph in the making: values and nodes in the order that they are added."""

    def __init__(self) -> None:
        self.values: list[Fields] = []
        self.nodes: list[Fields] = []

    def tensor(self, memory: int = -1, shape: tuple[int, ...] = SHAPE) -> int:
        fields: dict[int, Field] = {0: int8(5), 1: Numbers("I", shape), 2: int32(-1), 3: int32(memory)}
        return self.value(5, fields)

    def value(self, kind: int, fields: dict[int, Field]) -> int:
        self.values.append(Fields({0: int8(kind), 1: Fields(fields)}))
        return len(self.values) - 1

    def node(self, name: str, *args: int) -> None:
        self.nodes.append(Fields({0: uint32(len(self.nodes)), 1: name, 2: int32s(*args)}))

    def program(self, inputs: list[int], outputs: list[int]) -> bytes:
        """A method that is this delegate."""
        fields: dict[int, Field] = {0: "0", 1: self.nodes, 2: self.values, 5: []}
        fields |= {3: Numbers("I", tuple(inputs)), 4: Numbers("I", tuple(outputs))}
        graph = write_flatbuffer(Fields(fields), b"VK00")
        blob = pack("<4x4sHIIIQ2x", b"VH00", 30, 32, len(graph), 32 + len(graph), 0) + graph
        blob += bytes(-len(blob) % 16)
        count = len(inputs) + len(outputs)
        plan = plan_of(
            [tensor_of(slot2=int32s(*SHAPE), slot8=int8(1)) for _ in range(count)],
            slot3=int32s(*range(len(inputs))),
            slot4=int32s(*range(len(inputs), count)),
            slot5=chain_of(call_of(2, int32(0), int32s(*range(count)))),
            slot7=[Fields({0: "VulkanBackend", 1: Fields({0: int8(1), 1: uint32(0)})})],
        )
        segments: dict[int, Field] = {4: [Fields({0: uint64(0), 1: uint64(len(blob))})]}
        return program_bytes([plan], segments, header_length=32, segments=blob)


def chain(count: int, memories: int | None) -> bytes:
    """A chain of nodes whose tensors share `memories` memory objects, or have one each."""
    drawing = Drawing()
    first = last = drawing.tensor()
    for index in range(count):
        output = drawing.tensor(index % memories if memories else index)
        drawing.node("aten.relu.default", last, output)
        last = output
    return drawing.program([first], [last])


def many_inputs(count: int) -> bytes:
    drawing = Drawing()
    inputs, outputs = list[int](), list[int]()
    for _ in range(count):
        inputs.append(drawing.tensor())
        outputs.append(drawing.tensor())
        drawing.node("aten.relu.default", inputs[-1], outputs[-1])
    return drawing.program(inputs, outputs)


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of Python functions a piece of work makes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def describe_all(program: pteron.Program) -> None:
    (prepared,) = program._prepared["forward"]
    compiled = Compiled(prepared, Target())
    compiled.plan_at_maximum()
    describe(program._records["forward"], [compiled])


@pytest.mark.parametrize("memories", [2, None], ids=["shared", "own"])
def test_a_node_costs_the_same_in_a_larger_graph(memories: int | None) -> None:
    """Reading, checking, planning, and finding which dims are free."""
    costs = []
    for count in (60, 400):
        data = chain(count, memories)
        pteron.load(data)  # what is made once in a process
        loaded = calls_of(lambda data=data: pteron.load(data))  # type: ignore[misc]  # bound at once
        program = pteron.load(data)
        described = calls_of(lambda program=program: describe_all(program))  # type: ignore[misc]
        costs.append((loaded / count, described / count))
    for small, large in zip(*costs, strict=True):
        assert large < 1.2 * small


@pytest.mark.parametrize("count", [40, 400])
def test_free_dims_are_looked_for_within_bounds(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dim of each input is tried by planning all nodes: with many of both, what the file says counts."""
    program = pteron.load(many_inputs(count))
    (prepared,) = program._prepared["forward"]
    shapes, tried = specs._shapes, list[int]()

    def counted(*given: Any) -> Any:
        tried.append(1)
        return shapes(*given)

    monkeypatch.setattr(specs, "_shapes", counted)
    inputs, outputs = describe(program._records["forward"], [Compiled(prepared, Target())])
    assert len(tried) * count <= 2 * specs._TRIED_MAX + count
    assert bool(tried) == (2 * count * count <= specs._TRIED_MAX)
    assert all(spec.dynamic == (True, True) for spec in (*inputs, *outputs))
