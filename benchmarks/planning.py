"""The cost of planning, and the part of verification in it. Needs no GPU.

    python benchmarks/planning.py [PROGRAM.pte] [--steps 1 128] [--repeats 20] [--nodes 10 1000] [--save FILE]

CPU time of this thread: for a program's plans, with and without repeating its layers, and for graphs of
--nodes nodes from records to a plan; a node should cost the same in a large graph as in a small one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import figures
from figures import HOST_TOLERANCE, Figure

import pteron
from pteron.dtypes import DType
from pteron.gpu.worker_pool import gc_paused
from pteron.graph import Graph, Node, Tensor
from pteron.ops import Target
from pteron.ops.terms import dim_id
from pteron.passes import prepare
from pteron.plan import Compiled, collect

HARDWARE = Target(
    shader_f16=True,
    subgroup_size=32,
    is_cpu=False,
    workgroup_bytes_max=49152,
    binding_bytes_max=(1 << 31) - 4,
)
NODES = (10, 100, 1000, 10_000, 20_000)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", nargs="?")
    parser.add_argument("--steps", type=int, nargs="*", default=[1, 128])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES)
    parser.add_argument("--save", help="a file to add the figures to")
    arguments = parser.parse_args()
    measured = plans(arguments.program, arguments.steps, arguments.repeats) if arguments.program else []
    measured += [growth(count) for count in arguments.nodes]
    if arguments.save:
        figures.add(arguments.save, None, measured)


def plans(path: str, steps: list[int], repeats: int) -> list[Figure]:
    """The time of a language model's plans, by number of tokens."""
    graph = pteron.load(path).graphs("forward")[0]
    compiled = Compiled(prepare(graph), HARDWARE)
    values = {source.symbol: 16 for source in compiled.executable.sources}
    measured = []
    for count in (count for count in steps if (compiled.shapes_max[0] or (0,))[-1] >= count):
        shapes = ((1, count), (1,))
        values[dim_id(compiled.prepared.graph.inputs[0].id, 1)] = count  # live, as in calls
        launches = compiled.plan(shapes, values).launches
        unchecked = sum(not launch.module.bounds_checks for launch in launches)

        @gc_paused()  # as in calls
        def plan(shapes: tuple[tuple[int, int], tuple[int]] = shapes) -> None:
            compiled.plan(shapes, values)

        @gc_paused()
        def walk(shapes: tuple[tuple[int, int], tuple[int]] = shapes) -> None:
            compiled.walk(shapes, values).finish()

        whole, without = in_turns(plan, repeats)
        walked = min(cpu_seconds(walk) for _ in range(repeats))
        print(
            f"{count:4} tokens: {len(launches)} launches, {unchecked} of them unchecked; planning "
            f"{min(whole) * 1e3:.2f} ms, {(min(whole) - min(without)) / min(whole):.1%} of it verification; "
            f"layer by layer {walked * 1e3:.2f} ms"
        )
        times = [1e3 * seconds for seconds in whole]
        measured.append(Figure.of(f"plan for {count} tokens", times, "ms", tolerance=HOST_TOLERANCE))
    return measured


def in_turns(plan: Callable[[], None], repeats: int) -> tuple[list[float], list[float]]:
    """CPU seconds of a plan as it is, and without verification."""
    verify = collect.verify
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * repeats):
        is_whole = turn % 2 == 0
        collect.verify = verify if is_whole else lambda *_: None
        times[is_whole].append(cpu_seconds(plan))
    collect.verify = verify
    return times[True], times[False]


def growth(count: int) -> Figure:
    """Microseconds per node, from a graph to its plan."""

    def load() -> None:
        with gc_paused():  # as `pteron.load` does
            prepared = prepare(chain(count))
        Compiled(prepared, HARDWARE).plan_at_maximum()

    load()
    each = [1e6 * cpu_seconds(load) / count for _ in range(max(1, min(20, 5000 // count)))]
    print(f"{count:6,} nodes: {min(each) * count / 1e6:8.4f} s, {min(each):6.1f} µs a node", flush=True)
    return Figure.of(f"load {count} nodes", each, "µs a node", tolerance=HOST_TOLERANCE)


def chain(count: int) -> Graph:
    """Sums, products and views in turn, each of the result before it."""
    names = ("aten.add.Tensor", "aten.mul.Tensor", "aten.view_copy.default")
    shape = (4, 256)
    x, y = (Tensor(id, DType.F32, shape, None, None) for id in range(2))
    nodes, last = [], x
    for index in range(count):
        name = names[index % 3]
        result = Tensor(2 + index, DType.F32, shape, None, index % 4)
        others = {"aten.add.Tensor": (y, 1), "aten.mul.Tensor": (y,)}.get(name, (shape,))
        nodes.append(Node(index, name, (last, *others, result)))
        last = result
    return Graph(f"{count} nodes", tuple(nodes), (x, y), (last,))


def cpu_seconds(call: Callable[[], None]) -> float:
    started = time.thread_time()
    call()
    return time.thread_time() - started


if __name__ == "__main__":
    main()
