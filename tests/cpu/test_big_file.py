"""Opening a large program costs neither memory nor time: its weights stay in the file until they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from struct import pack

import pytest
from flatbuffer_writer import (
    Field,
    Fields,
    ScalarVector,
    int8,
    int32,
    int32s,
    uint32,
    uint64,
    write_flatbuffer,
)
from program_writer import call_of, chain_of, plan_of, program_bytes, tensor_of

SECONDS = 2.0
WEIGHT = (16384, 16384)  # 1 GiB of f32
NAMED = 2**64 - 1

# Prints the seconds and megabytes that each step takes, on top of a process that has imported Pteron.
MEASURE = """
import sys, time
import numpy, pteron, pteron.cli.inspect, pteron.runtime.program, pteron.tools.inspect.report
from pteron.tools.local_adapter import find_adapter

find_adapter()

def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

def measure(step):
    before, began = megabytes(), time.perf_counter()
    kept = step()
    print("measured", time.perf_counter() - began, megabytes() - before)
    return kept

path = sys.argv[1]
program = measure(lambda: pteron.load(path))
assert program.methods
measure(lambda: pteron.cli.main(["inspect", path]))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")


def measure(path: Path) -> list[tuple[float, float]]:
    """(seconds, megabytes) of loading a program and of inspecting it, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("measured ")]
    assert len(lines) == 2
    return [(float(seconds), float(megabytes)) for _, seconds, megabytes in lines]


def vulkan_tensor(*dims: int, constant: int = -1) -> Fields:
    fields: dict[int, Field] = {0: int8(5), 1: ScalarVector("I", dims), 2: int32(constant), 3: int32(-1)}
    return Fields({0: int8(5), 1: Fields(fields)})


def large_program(weight_bytes: int) -> bytes:
    """One linear layer without bias; the segment of its weight is to follow these bytes."""
    rows, columns = WEIGHT
    graph = write_flatbuffer(
        Fields(
            {
                0: "0",
                1: [Fields({0: uint32(0), 1: "aten.linear.default", 2: int32s(0, 1, 2, 3)})],
                2: [
                    vulkan_tensor(1, columns),
                    vulkan_tensor(rows, columns, constant=0),
                    Fields({0: int8(1)}),
                    vulkan_tensor(1, rows),
                ],
                3: ScalarVector("I", (0,)),
                4: ScalarVector("I", (3,)),
                5: [Fields({0: uint64(NAMED), 1: uint64(weight_bytes), 2: "weight"})],
            }
        ),
        b"VK00",
    )
    blob = pack("<4x4sHIIIQ2x", b"VH00", 30, 32, len(graph), 32 + len(graph), 0) + graph
    blob += bytes(-len(blob) % 16)
    plan = plan_of(
        [tensor_of(slot2=int32s(1, columns)), tensor_of(slot2=int32s(1, rows))],
        slot3=int32s(0),
        slot4=int32s(1),
        slot5=chain_of(call_of(2, int32(0), int32s(0, 1))),
        slot7=[Fields({0: "VulkanBackend", 1: Fields({0: int8(1), 1: uint32(0)})})],
    )
    slots: dict[int, Field] = {
        4: [
            Fields({0: uint64(0), 1: uint64(len(blob))}),
            Fields({0: uint64(len(blob)), 1: uint64(weight_bytes)}),
        ],
        7: [Fields({0: "weight", 1: uint32(1)})],
    }
    return program_bytes([plan], slots, header_length=32, segments=blob)


def test_a_large_program_is_not_read(tmp_path: Path) -> None:
    """The weight is a hole in the file: looking at any page of it would make that page resident."""
    path, weight_bytes = tmp_path / "large.pte", WEIGHT[0] * WEIGHT[1] * 4
    content = large_program(weight_bytes)
    with path.open("wb") as file:
        file.write(content)
        file.truncate(len(content) + weight_bytes)
    if path.stat().st_blocks * 512 > weight_bytes / 2:
        pytest.skip("this file system has no sparse files")
    for seconds, megabytes in measure(path):
        assert seconds < SECONDS
        assert megabytes < 20
