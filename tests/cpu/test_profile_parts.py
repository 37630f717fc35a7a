"""Profiles: bytes and operations of launches by plans alone, layers of a graph, the cost of timestamps."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sketch import Sketch

import pteron
from pteron.errors import InputError
from pteron.graph import Graph, Node, Shape, Tensor
from pteron.graph.values import tensors
from pteron.ops import Target, Weight
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.plan.layers import longest_repetition
from pteron.tools.graph_structure import layers_of
from pteron.tools.profile.report import (
    OUTSIDE,
    Ceilings,
    LaunchTime,
    Profile,
    Stage,
    group_launches,
    profile_lines,
)
from pteron.tools.profile.timing import fit_to_pass, subtract_stamp_cost
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
    return work_of(Compiled(prepare(graph), target), ((1, tokens), (1,)), dict.fromkeys(symbols, position))


@pytest.mark.long(every=2)
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


@pytest.mark.parametrize(("window", "seen"), [(None, 6 + 7 + 8), (7, 6 + 7 + 7), (3, 3 * 3)])
def test_operations_of_attention_are_those_of_its_window(window: int | None, seen: int, models: Path) -> None:
    """Each of three tokens from position 5 on sees itself, and those before it that its window has."""
    graph = forward(models / "tiny_llama_fp32.pte")
    options = (None, window, None, None, None, None)  # scale, window, softcap, sinks, slopes, value_width

    def with_options(node: Node) -> Node:
        return replace(node, name="pteron.attention.default", args=(*node.args[:6], *options, node.args[-1]))

    heads, width = 4, 16
    nodes = [with_options(node) if "sdpa" in node.name else node for node in graph.nodes]
    graphs = (graph, replace(graph, nodes=tuple(nodes)))
    every, some = (sum(work.operations or 0 for work in step(each, SOFTWARE, 3, 5)) for each in graphs)
    layers = sum("sdpa" in node.name for node in graph.nodes)
    assert every - some == pytest.approx(layers * 4 * heads * width * (6 + 7 + 8 - seen))


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
    works = work_of(Compiled(prepare(graph), target), ((1, 1), (1,)), values)
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
    works = work_of(Compiled(prepare(graph), SOFTWARE), (x.shape_max,), {})
    placed, each = (x.shape_max, 3 * 6) if transposed else (shape, 2 * 6)
    assert sum(work.operations or 0 for work in works) == 2 * math.prod(placed) * each
    assert sum(work.bytes_written for work in works) == 4 * math.prod(shape)


def test_a_slice_reads_what_it_gives() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(100, 8), sketch.tensor(3, 8)
    sketch.node("aten.slice_copy.Tensor", x, 0, 5, 8, 1, out)
    works = work_of(Compiled(prepare(sketch.graph([x], [out])), SOFTWARE), ((100, 8),), {})
    assert [(work.bytes_read, work.bytes_written, work.operations) for work in works] == [(96, 96, None)]


def test_the_least_time_is_that_of_the_slower_part() -> None:
    ceilings = Ceilings(bytes_per_second=10.0, operations_per_second=4.0)
    assert ceilings.least_seconds(20, 4.0) == 2.0
    assert ceilings.least_seconds(20, 100.0) == 25.0
    assert ceilings.least_seconds(20, None) == 2.0


def launch(index: int, seconds: float, operations: float | None = None, **about: Any) -> LaunchTime:
    known: dict[str, Any] = {"delegate": 0, "node": index, "nodes": (index,), "layer": None, **about}
    return LaunchTime(
        index, operator="op", family="linear", kernel="k", groups=(1, 1, 1), seconds=seconds,
        stamped_seconds=seconds, bytes_read=6, bytes_written=4, operations=operations, **known,
    )  # fmt: skip


def test_groups_of_launches() -> None:
    launches = (
        launch(0, 1.0, layer=0),
        launch(1, 2.0, 8.0, nodes=(1, 2), layer=0),
        launch(2, 4.0, node=3, nodes=(3,), layer=1),
        launch(3, 1.0, delegate=None),
    )
    profile = Profile(
        "m.pte", "forward", "forward", "a GPU", ("f32[1]",), 5, "stamps", launches, 0.0, 8.0, 8.0, 10.0,
        (Stage("wait", 5.0, False), Stage("prepare", 3.0, True)), 0, Ceilings(10.0, 4.0),
    )  # fmt: skip
    assert [row.name for row in group_launches(profile)] == ["0 op", "1-2 op", "3 op", "draw op"]
    outside, first, second = (
        next(row for row in group_launches(profile, "layer") if row.name == name)
        for name in (OUTSIDE, "layer 0", "layer 1")
    )
    assert (first.seconds, first.share, first.bytes, first.operations) == (3.0, 3 / 8, 20, 8.0)
    assert first.fraction == (1.0 + 2.0) / 3.0
    assert (first.bytes_per_second, first.operations_per_second) == (20 / 3, 8 / 3)
    assert (second.operations, second.operations_per_second, second.fraction) == (None, None, 0.25)
    assert outside.launches == (launches[3],)
    several = replace(profile, launches=(launches[0], launch(1, 1.0, delegate=1, node=0, nodes=(0,))))
    assert [row.name for row in group_launches(several)] == ["0:0 op", "1:0 op"]
    lines = "\n".join(profile_lines(profile, "layer", top=1))
    assert "no layers found: nothing in the graph repeats" in lines
    assert "2 more" in lines
    (rest,) = (line for line in profile_lines(profile, "launch", top=2) if line.startswith("2 more"))
    assert rest.split() == ["2", "more", "2.00", "s"]
    assert "4 launches: 8.00 s in total, 8.00 s in one pass (they differ by 0%)" in lines
    assert "timestamps add 0 µs per launch, which is subtracted\n" in lines
    fitted = "\n".join(profile_lines(replace(profile, pass_seconds=10.0, paired_seconds=12.0)))
    assert "8.00 s in total, 10.00 s in one pass (they differ by 20%); medians of the faster half" in fitted
    assert "which is subtracted (1.00 s of it to match the time of the whole pass)" in fitted
    assert "timestamps add" not in "\n".join(profile_lines(replace(profile, timing="wall")))
    whole = profile_lines(profile, "layer")
    (row,) = (line.split() for line in map(str, whole) if line.startswith("layer 0"))
    assert row[2:7] == ["2", "3.00", "s", "37.5%", "20"]  # launches, their time, its share, their bytes
    assert "the last launch samples the next token" in lines
    assert "wait" in lines
    assert "50.0%" in lines  # of the call
    assert "no layers" not in "\n".join(profile_lines(replace(profile, layers=2), "layer"))
    with pytest.raises(InputError, match="grouped by launch, node"):
        group_launches(profile, "color")


# Layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (0, 0, 0)),
        ("a", (0, 0, 0)),
        ("ab", (0, 0, 0)),
        ("aa", (0, 1, 2)),
        ("abcabc", (0, 3, 2)),
        ("xabcabcabcy", (1, 3, 3)),
        ("xabababab", (1, 2, 4)),  # not twice abab
        ("eabcdabcdabn", (1, 4, 2)),  # a partial repetition does not count
        ("aabcaabcaabc", (0, 4, 3)),  # what covers more, though aa repeats sooner
    ],
)
def test_the_longest_repetition(text: str, found: tuple[int, int, int]) -> None:
    assert longest_repetition(np.array([ord(letter) for letter in text], np.int64)) == found


def network(layers: int, widths: tuple[int, ...] = (8, 8)) -> Graph:
    """An embedding, layers of products and activations, one more norm. The first layer makes something that
    all of them use, as the rotation of a transformer is."""
    sketch = Sketch()
    ids, x = sketch.tensor(1), sketch.tensor(1, 8)
    sketch.node("aten.embedding.default", sketch.constant(9, 8), ids, None, False, False, x)
    shared = None
    for _ in range(layers):
        for width in widths:
            if shared is None:
                shared = sketch.tensor(1, 8)
                sketch.node("aten.clone.default", x, None, shared)
            made, activated = sketch.tensor(1, width), sketch.tensor(1, width)
            sketch.node("aten.linear.default", x, sketch.constant(width, x.shape_max[-1]), None, made)
            sketch.node("aten.relu.default", made, activated)
            x = activated
    out = sketch.tensor(1, 8)
    sketch.node("et_vk.rms_norm.default", x, sketch.constant(8), 1e-5, out)
    return sketch.graph([ids], [out])


def test_layers_of_a_network() -> None:
    """Each is a product and its activation; what comes before the first product and from the norm on is in
    none of them."""
    graph = network(3)
    layers = layers_of(graph)
    names = {
        index: [graph.nodes[node].name for node in layers if layers[node] == index] for index in range(6)
    }
    assert names == {index: ["aten.linear.default", "aten.relu.default"] for index in range(6)}
    assert 0 not in layers
    assert graph.nodes[-1].index not in layers


def test_what_differs_in_shape_is_another_layer() -> None:
    layers = layers_of(network(3, (16, 8)))
    assert sorted(set(layers.values())) == [0, 1, 2]
    assert [list(layers.values()).count(index) for index in range(3)] == [4, 4, 4]


def test_one_layer_is_none() -> None:
    assert layers_of(network(1, (8,))) == {}


# The cost of timestamps ------------------------------------------------------------------------


def measured(times: list[float], cost: float) -> tuple[list[float], list[float]]:
    """Measured times of launches and of pairs, if a stamp of the same cost follows each."""
    each = [time + cost for time in times]
    return each, [first + second + cost for first, second in pairwise(times)]


def test_equal_stamps_are_taken_off() -> None:
    """The cost of each time stamp is subtracted, except for the last one: the first and the last launch keep
    half of it each, because the whole pass includes it too."""
    times = [5.0, 3.0, 80.0, 4.0, 2.5]
    found = subtract_stamp_cost(*measured(times, 2.0))
    assert found[1:-1] == pytest.approx(times[1:-1])
    assert sum(found) == pytest.approx(sum(times) + 2.0)


def test_launches_that_overlap_share_their_time() -> None:
    """Two launches of ten seconds that overlap take ten in total; a third waits for both."""
    found = subtract_stamp_cost([10.0, 10.0, 10.0], [10.0, 20.0])
    assert found == pytest.approx([5.0, 5.0, 10.0])


def test_nothing_gets_negative() -> None:
    """Even if the pair times are random."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        each, pairs = generator.exponential(size=9).tolist(), generator.normal(size=8).tolist()
        found = subtract_stamp_cost(each, pairs)
        assert all(0 <= new <= old for new, old in zip(found, each, strict=True))


def test_a_long_launch_stays_long() -> None:
    """At most its neighbours' time is subtracted from it, so noise cannot rank it below them."""
    found = subtract_stamp_cost([1.0, 50.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    assert found[1] == 49.0


def test_what_is_left_over_the_pass_is_taken_off_alike() -> None:
    assert fit_to_pass([5.0, 3.0, 4.0], 9.0) == pytest.approx([4.0, 2.0, 3.0])
    assert fit_to_pass([5.0, 3.0], 9.0) == [5.0, 3.0], "nothing is added"
    assert fit_to_pass([], 1.0) == []
    assert fit_to_pass([9.0, 0.5, 9.0], 12.5) == pytest.approx([6.25, 0.0, 6.25])
    for each in ([], [3.0], [3.0, 4.0]):
        assert subtract_stamp_cost(each, []) == each


def test_order_is_kept() -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        each = generator.exponential(size=11)
        found = np.array(fit_to_pass(each.tolist(), float(each.sum()) * generator.uniform(0.1, 1)))
        assert (np.diff(found[np.argsort(each)]) >= -1e-12).all()
        assert found.min() >= 0
