"""The bytes and operations of launches, by plans alone: whatever kernels a device gets, work is the same."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from sketch import Sketch

import pteron
from pteron.graph import Graph, Shape, Tensor
from pteron.graph.values import tensors
from pteron.ops import Target, Weight
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.tools.profile.work import LaunchWork, work_of

SOFTWARE = Target(is_cpu=True)
HARDWARE = Target(is_cpu=False)
LANES = replace(HARDWARE, subgroup_size=32, packed_dots=True, shader_f16=True)


def forward(path: Path) -> Graph:
    (graph,) = pteron.load(path).graphs("forward")
    return graph


def step(graph: Graph, target: Target, tokens: int, position: int) -> list[LaunchWork]:
    """The work of a language model's step."""
    symbols = [source.symbol for source in Compiled(prepare(graph), target).prepared.sources]
    return work_of(graph, target, ((1, tokens), (1,)), dict.fromkeys(symbols, position))


@pytest.mark.parametrize("name", ["tiny_llama_q4", "tiny_llama_fp32", "tiny_llama_8da4w", "tiny_qwen3_fp32"])
@pytest.mark.parametrize(("tokens", "position"), [(1, 20), (7, 0), (31, 3)])
def test_operations_are_those_of_the_graph(name: str, tokens: int, position: int, models: Path) -> None:
    """Twice the weights for every row (the last product has one), and attention to all that comes before."""
    graph = forward(models / f"{name}.pte")
    wanted = 0
    for node in graph.nodes:
        shapes = [tensor.shape_max for value in node.args for tensor in tensors(value)]
        if "linear" in node.name:
            rows = tokens if math.prod(shapes[-1][:-1]) > 1 else 1
            wanted += 2 * rows * shapes[0][-1] * shapes[-1][-1]
        if "sdpa" in node.name:
            _, _, heads, width = shapes[0]
            wanted += 4 * heads * width * (tokens * position + tokens * (tokens + 1) // 2)
    for target in (SOFTWARE, HARDWARE, LANES):
        found = sum(launch.operations or 0 for launch in step(graph, target, tokens, position))
        assert found == pytest.approx(wanted)


@pytest.mark.parametrize("target", [SOFTWARE, HARDWARE, LANES], ids=["software", "hardware", "lanes"])
def test_a_step_reads_each_weight_once(target: Target, models: Path) -> None:
    """Of tables one row; the rest of what is read are activations of one row, and caches of 20 positions."""
    graph = forward(models / "tiny_llama_q4.pte")
    compiled = Compiled(prepare(graph), target)
    values = {source.symbol: 20 for source in compiled.prepared.sources}
    plan = compiled.plan(((1, 1), (1,)), values)
    tables = {
        tensor.constant
        for node in graph.nodes
        if "embedding" in node.name or "slice" in node.name or "prepack" in node.name
        for value in node.args
        for tensor in tensors(value)
    }
    bound = {buffer for launch in plan.launches for buffer in launch.buffers if isinstance(buffer, Weight)}
    weights = sum(weight.bytes for weight in bound if weight.constant not in tables)
    works = work_of(graph, target, ((1, 1), (1,)), values)
    read = sum(work.bytes_read for work in works)
    caches = 21 * 2 * 2 * 32 * 4
    assert weights + caches < read < weights + caches + len(works) * 4 * 1024


def product(rows: int, transposed: bool = False) -> tuple[Graph, Shape]:
    """A convolution of `rows` pictures."""
    sketch = Sketch()
    x, weight = sketch.tensor(rows, 4, 9, 7), sketch.constant(*((4, 3, 3, 2) if transposed else (6, 2, 3, 2)))
    groups = 2
    shape = (rows, 6, 11, 8) if transposed else (rows, 6, 7, 6)
    out = sketch.tensor(*shape)
    arguments = (None, (1, 1), (0, 0), (1, 1), transposed, (0, 0), groups)
    sketch.node("aten.convolution.default", x, weight, *arguments, out)
    return sketch.graph([x], [out]), shape


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_in_groups(transposed: bool) -> None:
    """Each output sums 2 channels of a window of 3 x 2; transposed, each input goes to 3 channels of one."""
    graph, shape = product(2, transposed)
    (x,) = graph.inputs
    assert isinstance(x, Tensor)
    works = work_of(graph, SOFTWARE, (x.shape_max,), {})
    placed, each = (x.shape_max, 3 * 6) if transposed else (shape, 2 * 6)
    assert sum(work.operations or 0 for work in works) == 2 * math.prod(placed) * each
    assert sum(work.bytes_written for work in works) == 4 * math.prod(shape)


def test_a_slice_reads_what_it_gives() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(100, 8), sketch.tensor(3, 8)
    sketch.node("aten.slice_copy.Tensor", x, 0, 5, 8, 1, out)
    works = work_of(sketch.graph([x], [out]), SOFTWARE, ((100, 8),), {})
    assert [(work.bytes_read, work.bytes_written, work.operations) for work in works] == [(96, 96, None)]
