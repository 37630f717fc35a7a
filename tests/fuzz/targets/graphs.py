"""Delegate graphs, from a blob to results: whatever loads is planned within its buffers at any live dims.

`plans` looks at plans for every kind of device, on none; `graphs` executes what is small on the device there
is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

from targets import TARGETS as KINDS

from fuzz.executed import draw_inputs, execute, is_small, the_device
from fuzz.mutation.graphs import mutate_graph
from fuzz.planned import check_guards, check_plan
from fuzz.target import Target, Wrong
from fuzz.targets.seeded_graphs import graph_seeds
from pteron.errors import MisfitError, PteronError, ShapeError
from pteron.format.delegate import read_delegate
from pteron.graph import Tensor, build
from pteron.ops import Target as Kind
from pteron.passes import Prepared, missing_operators, prepare
from pteron.plan import Compiled, Shapes

_CALLS = 4


def _prepared(data: bytes) -> Prepared | None:
    graph = build(read_delegate(memoryview(data), "graph", lambda key: None))
    return None if missing_operators(graph) else prepare(graph)


def live_calls(prepared: Prepared, random: Random) -> Iterator[tuple[Shapes, Mapping[int, int]]]:
    """Shapes and live integers of calls: the maximum first, then anything below."""
    most = tuple(value.shape_max if isinstance(value, Tensor) else None for value in prepared.graph.inputs)
    symbols = [source.symbol for source in prepared.sources]
    yield most, dict.fromkeys(symbols, 0)
    sizes = sorted({size for shape in most for size in shape or () if size > 1})
    for _ in range(_CALLS - 1):
        # Dims of one maximum are mostly one dim of the model.
        below = {size: random.choice((size, size - 1, 1, random.randrange(size + 1), 0)) for size in sizes}
        kept = set(random.sample(sizes, len(sizes) // 2))
        shapes = tuple(
            shape and tuple(size if size in kept else below.get(size, size) for size in shape)
            for shape in most
        )
        yield shapes, {symbol: random.choice((0, 1, 2, 5, random.randrange(64), -1)) for symbol in symbols}


def plan_all(prepared: Prepared, kind: Kind, random: Random) -> int:
    """Plans of a graph for a kind of device; how many there are."""
    compiled = Compiled(prepared, kind)
    at_most = compiled.plan_at_maximum()
    if at_most is not None:
        _check(compiled, *at_most)
    check_plan(compiled, compiled.executable.once, [])
    made = 0
    for shapes, values in live_calls(prepared, random):
        try:
            plan = compiled.plan(shapes, values)
        except (MisfitError, ShapeError):
            continue
        except PteronError as error:
            raise Wrong(
                "planning", f"it loaded, and then {type(error).__name__} at {shapes}, {values}: {error}"
            ) from error
        _check(compiled, plan, dict(values))
        check_guards(compiled, plan, shapes, values, random)
        made += 1
    return made


def _check(compiled: Compiled, plan: object, values: dict[int, int]) -> None:
    numbers = plan.numbers(values)  # type: ignore[attr-defined]
    if numbers is None:
        raise Wrong("own guards", f"a plan made for {values} is not right for them")
    check_plan(compiled, plan, numbers)  # type: ignore[arg-type]


def _run_plans(data: bytes) -> str:
    prepared = _prepared(data)
    if prepared is None:
        return "unsupported"
    random = Random(zlib.crc32(data))
    made = sum(plan_all(prepared, kind, random) for kind in random.sample(list(KINDS.values()), 2))
    return "planned" if made else "no plan"


def _run_graphs(data: bytes) -> str:
    prepared = _prepared(data)
    if prepared is None:
        return "unsupported"
    random = Random(zlib.crc32(data))
    own = the_device().target
    kind = replace(own, is_cpu=random.random() < 0.5) if own.is_cpu else own
    compiled = Compiled(prepared, kind)
    if not is_small(compiled):
        return "too large to run"
    calls = [draw_inputs(prepared, *call, random) for call in live_calls(prepared, random)]
    return execute(prepared, kind, calls, measured=random.random() < 0.25)


GRAPH_TARGETS = [
    Target(
        name="plans",
        run=_run_plans,
        seeds=graph_seeds,
        mutate=mutate_graph,
        suffix=".blob",
        seconds=8,
        share=4,
    ),
    Target(
        name="graphs",
        run=_run_graphs,
        seeds=graph_seeds,
        mutate=mutate_graph,
        suffix=".blob",
        needs=("pytest",),
        seconds=20,
        megabytes=4096,
        on_device=True,
        share=5,
        warm=the_device,
    ),
]
