"""What planning costs, and what of it is proving that launches stay within their memory. Needs no GPU.

python benchmarks/planning.py PROGRAM.pte [--steps 1 128] [--repeats 20]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import pteron
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.plan.collect import Collector

HARDWARE = Target(
    shader_f16=True,
    subgroup_size=32,
    is_cpu=False,
    workgroup_bytes_max=49152,
    binding_bytes_max=(1 << 31) - 4,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, nargs="*", default=[1, 128])
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    graph = pteron.load(arguments.program).graphs("forward")[0]
    compiled = Compiled(prepare(graph), HARDWARE)
    values = {source.symbol: 16 for source in compiled.executable.sources}
    for steps in arguments.steps:
        shapes = ((1, steps), (1,))
        launches = compiled.plan(shapes, values).launches
        unchecked = sum(not launch.module.bounds_checks for launch in launches)

        def plan(shapes: tuple[tuple[int, int], tuple[int]] = shapes) -> None:
            compiled.plan(shapes, values)

        whole, without = measured(plan, arguments.repeats)
        print(
            f"{steps:4} tokens: {len(launches)} launches, {unchecked} of them unchecked; planning "
            f"{whole * 1e3:.2f} ms, {(whole - without) / whole:.1%} of it verification"
        )


def measured(plan: Callable[[], None], repeats: int) -> tuple[float, float]:
    """CPU seconds of a plan as it is, and without verification: the least of many, in turns."""
    prove = Collector._prove
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * repeats):
        is_whole = turn % 2 == 0
        Collector._prove = prove if is_whole else lambda *_: None
        started = time.process_time()
        plan()
        times[is_whole].append(time.process_time() - started)
    Collector._prove = prove
    return min(times[True]), min(times[False])


if __name__ == "__main__":
    main()
