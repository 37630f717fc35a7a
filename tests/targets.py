"""The kinds of device that plans differ by, and the kernels of a graph's plans on all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from pteron.errors import MisfitError
from pteron.graph import Graph, Tensor
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled, Shapes
from pteron.wgsl import Module

Call: TypeAlias = tuple[Shapes, Mapping[int, int]]  # the inputs' shapes, the live integers' values

_GPU = Target(is_cpu=False, workgroup_bytes_max=32768, invocations_max=1024)
TARGETS = {
    "software": Target(),
    "WARP": Target(
        shader_f16=True, broadcasts=True, workgroup_bytes_max=32768, invocations_max=1024, loop_max=65535
    ),
    "the least of WebGPU": Target(is_cpu=False, packed_dots=False),
    "D3D12": replace(_GPU, shader_f16=True),
    "Metal": replace(_GPU, subgroup_size=32, shader_f16=True, packed_dots=False, uniform_alignment=32),
    "Metal, Intel": replace(_GPU, packed_dots=False),
    "Vulkan, subgroups": replace(_GPU, subgroup_size=32, workgroup_bytes_max=49152),
}


def modules_at(graph: Graph, calls: Sequence[Call]) -> Iterator[tuple[Target, Module]]:
    """The kernels of a graph's plans at these calls, for every kind of device."""
    prepared = prepare(graph)
    for target in TARGETS.values():
        compiled = Compiled(prepared, target)
        plans = [compiled.executable.once, *(compiled.plan(shapes, values) for shapes, values in calls)]
        yield from ((target, launch.module) for plan in plans for launch in plan.launches)


def modules_of(graph: Graph) -> Iterator[tuple[Target, Module]]:
    """The same at several live shapes and values of the live integers, where the graph has them."""
    most = tuple(value.shape_max if isinstance(value, Tensor) else None for value in graph.inputs)
    symbols = [source.symbol for source in prepare(graph).sources]
    for size in (1 << 30, 5, 1):
        shapes = tuple(shape and tuple(min(size, live) for live in shape) for shape in most)
        for value in (0, 20):
            try:
                yield from modules_at(graph, [(shapes, dict.fromkeys(symbols, value))])
            except MisfitError:
                continue  # sizes or values that this graph does not take
