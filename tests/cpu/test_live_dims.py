"""Live dims: few plans suit all lengths, and a plan found for a length equals the plan made for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernel_fixtures import evaluate_at, evaluated
from sketch import Sketch

import pteron
from pteron.dtypes import DType
from pteron.errors import PteronError
from pteron.format.source import open_bytes
from pteron.graph import Tensor
from pteron.ops import Target
from pteron.ops.operand import Slot
from pteron.ops.target import MATRIX
from pteron.ops.terms import dim_id
from pteron.plan import Compiled, Plan, ScratchRef
from pteron.tools.inspect.program import examine_program
from pteron.tools.local_adapter import LocalAdapter

FILES = sorted((Path(__file__).parents[1] / "fixtures").glob("*/*.pte"))
STORIES = Path(pteron.__file__).parent / "models" / "stories15m" / "model.pte"
TARGETS = {
    "software": Target(),
    "software, uniform arrays": Target(broadcasts=True, uniform_alignment=32),
    "GPU": Target(is_cpu=False, workgroup_bytes_max=32768),
    "GPU, subgroups": Target(is_cpu=False, subgroup_size=32, workgroup_bytes_max=49152),
    "GPU, matrix cores": Target(
        is_cpu=False, subgroup_size=32, workgroup_bytes_max=49152, shader_f16=True, matrices=(MATRIX,)
    ),
}


def compiled_delegates(path: Path, target: Target) -> list[Compiled]:
    program = examine_program(open_bytes(path), local=LocalAdapter(target, "a GPU"))
    delegates = (each.compiled for method in program.methods for each in method.delegates)
    return [each for each in delegates if each]


@pytest.fixture(params=TARGETS)
def compiled(request: pytest.FixtureRequest) -> Compiled:
    (delegate,) = compiled_delegates(STORIES, TARGETS[request.param])
    return delegate


class Plans:
    """Plans for lengths, as a cache finds them."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.kept: list[Plan] = []
        self.tokens = compiled.prepared.graph.inputs[0].id

    def made(self, length: int, start: int) -> Plan:
        return self.compiled.plan(((1, length), (1,)), self.known(length, start))

    def known(self, length: int, start: int) -> dict[Any, int]:
        values = {source.symbol: start for source in self.compiled.prepared.sources}
        return {**values, dim_id(self.tokens, 1): length}

    def find(self, length: int, start: int) -> Plan | None:
        known = self.known(length, start)
        return next((plan for plan in self.kept if plan.numbers(known) is not None), None)


def test_few_plans_for_all_lengths(compiled: Compiled) -> None:
    plans = Plans(compiled)
    for length in range(2, 129):
        if plans.find(length, 0) is None:
            plans.kept.append(plans.made(length, 0))
    assert len(plans.kept) <= 11


@pytest.mark.long(every=2)
def test_a_found_plan_equals_the_plan_made(compiled: Compiled) -> None:
    plans, drawn = Plans(compiled), random.Random(0)
    for _ in range(30):
        length, start = drawn.randint(2, 128), drawn.choice((0, 0, 5, 100))
        made, found = plans.made(length, start), plans.find(length, start)
        if found is None:
            plans.kept.append(made)
        else:
            known = plans.known(length, start)
            assert list(evaluated(found, known)) == list(evaluated(made, known))


@pytest.mark.long(every=6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_found_plans_of_the_fixtures(path: Path, target: str) -> None:
    """Inputs' dims of one maximum are one dim here. Sizes that a program does not take are left out."""
    drawn = random.Random(0)
    for compiled in compiled_delegates(path, TARGETS[target]):
        inputs = [value for value in compiled.prepared.graph.inputs if isinstance(value, Tensor)]
        most = [value.shape_max if value in inputs else None for value in compiled.prepared.graph.inputs]
        for size in sorted({size for value in inputs for size in value.shape_max if size > 2}):
            kept: list[Plan] = []
            for _ in range(4):
                less = drawn.randint(2, size - 1)
                shapes = tuple(shape and tuple(less if n == size else n for n in shape) for shape in most)
                dims = [
                    dim_id(value.id, dim)
                    for value in inputs
                    for dim, length in enumerate(value.shape_max)
                    if length == size
                ]
                known = {source.symbol: drawn.choice((0, 1)) for source in compiled.prepared.sources}
                known |= dict.fromkeys(dims, less)
                with suppress(PteronError):
                    made = compiled.plan(shapes, known)
                    found = next((plan for plan in kept if plan.numbers(known) is not None), made)
                    assert list(evaluated(found, known)) == list(evaluated(made, known))
                    kept.append(made)


def _upsampled(sketch: Sketch, x: Tensor) -> Tensor:
    twice, out = sketch.tensor(1, 3, 128, 128), sketch.tensor(1, 3, 256, 256)
    sketch.node("aten.upsample_nearest2d.vec", x, None, (2.0, 2.0), twice)
    sizes = sketch.symbol(), sketch.symbol()
    for dim, size in enumerate(sizes, 2):
        length = sketch.symbol()
        sketch.node("sym_size.int", twice, dim, length)
        sketch.node("mul", length, 2, size)
    sketch.node("aten.upsample_bilinear2d.vec", twice, sketch.list(*sizes), False, None, out)
    return out


def _normed(sketch: Sketch, x: Tensor) -> Tensor:
    out, rows, columns, plane = sketch.tensor(1, 3, 64, 64), *(sketch.symbol() for _ in range(3))
    sketch.node("sym_size.int", x, 2, rows)
    sketch.node("sym_size.int", x, 3, columns)
    sketch.node("mul", rows, columns, plane)
    made = sketch.list(out, sketch.tensor(1, 1), sketch.tensor(1, 1))
    sketch.node("aten.native_group_norm.default", x, None, None, 1, 3, plane, 1, 1e-5, made)
    return out


def _attended(sketch: Sketch, x: Tensor) -> Tensor:
    mask, out = sketch.tensor(1, 1, 1, 64), sketch.tensor(1, 3, 64, 64)
    sketch.node("aten.select_copy.int", x, 3, 0, first := sketch.tensor(1, 3, 64))
    sketch.node("aten.select_copy.int", first, 1, 0, row := sketch.tensor(1, 64))
    sketch.node("aten.unsqueeze_copy.default", row, 1, rows := sketch.tensor(1, 1, 64))
    sketch.node("aten.unsqueeze_copy.default", rows, 1, mask)
    width = sketch.tensor(1, 3, 64, 16)
    sketch.node("aten.slice_copy.Tensor", x, 3, 0, 16, 1, width)
    sketch.node("et_vk.sdpa.default", width, width, width, mask, None, out)
    return out


def _scattered(sketch: Sketch, x: Tensor) -> Tensor:
    table, out = sketch.tensor(64), sketch.tensor(64)
    sketch.node("aten.full.default", (64,), 0.0, None, None, None, None, table)
    sketch.node("aten.select_copy.int", x, 3, 0, first := sketch.tensor(1, 3, 64))
    sketch.node("aten.select_copy.int", first, 1, 0, row := sketch.tensor(1, 64))
    sketch.node("aten.squeeze_copy.dims", row, (0,), values := sketch.tensor(64))
    indices = sketch.tensor(64, dtype=DType.I32)
    sketch.node("aten._to_copy.default", values, *(None,) * 6, indices)
    sketch.node("aten.index_put.default", table, sketch.list(indices), values, True, out)
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("add", [_upsampled, _normed, _attended, _scattered])
def test_a_plan_suits_planes_of_other_sizes(add: Callable[[Sketch, Tensor], Tensor], target: str) -> None:
    """Wider than high or higher than wide."""
    sketch = Sketch()
    x = sketch.tensor(1, 3, 64, 64)
    compiled = sketch.prepare([x], [add(sketch, x)], TARGETS[target])

    def known(height: int, width: int) -> dict[int, int]:
        return {dim_id(x.id, 2): height, dim_id(x.id, 3): width}

    plan = compiled.plan(((1, 3, 37, 41),), known(37, 41))
    for height, width in ((35, 45), (43, 39)):
        made = compiled.plan(((1, 3, height, width),), known(height, width))
        assert list(evaluated(plan, known(height, width))) == list(evaluated(made, known(height, width)))


@pytest.mark.parametrize(("target", "most"), [("software", 9), ("GPU", 16), ("GPU, matrix cores", 18)])
def test_few_plans_for_all_batches_and_lengths(target: str, most: int) -> None:
    """An encoder's layers count rows of all texts together, and compare no batch with a length."""
    sketch = Sketch()
    texts, places = sketch.tensor(32, 128, 64), sketch.tensor(128, 64)
    placed, mixed, pooled = (sketch.tensor(*shape) for shape in ((32, 128, 64), (32, 128, 64), (32, 64)))
    sketch.node("aten.add.Tensor", texts, places, 1, placed)
    sketch.node("aten.linear.default", placed, sketch.constant(64, 64), None, mixed)
    sketch.node("aten.sum.dim_IntList", mixed, (1,), False, None, pooled)
    compiled = sketch.prepare([texts, places], [pooled], TARGETS[target])
    drawn, kept = random.Random(0), list[Plan]()
    for _ in range(300):
        batch, length = drawn.randint(2, 32), drawn.randint(2, 128)
        known = {dim_id(texts.id, 0): batch, dim_id(texts.id, 1): length, dim_id(places.id, 0): length}
        if all(plan.numbers(known) is None for plan in kept):
            kept.append(compiled.plan(((batch, length, 64), (length, 64)), known))
    assert len(kept) <= most


def bindings_past_memory(compiled: Compiled, plan: Plan, known: Mapping[int, int]) -> list[str]:
    """Bindings of one length that leave their slot or scratch memory, slack included."""
    numbers, slack, found = plan.numbers(known), compiled.target.slack, []
    assert numbers is not None
    for launch in plan.launches:
        starts = dict(launch.starts)
        for binding, buffer in zip(launch.module.bindings, launch.buffers, strict=True):
            sizes = compiled.executable.slots if isinstance(buffer, Slot) else plan.scratch_bytes
            if isinstance(buffer, (Slot, ScratchRef)) and 0 not in launch.grid(numbers):
                start = evaluate_at(starts.get(binding.name, 0), numbers)
                if start + max(binding.bytes, 4) > sizes[buffer.index] + slack:
                    found.append(f"{launch}, {binding.name} from {start}")
    return found


@pytest.mark.parametrize(
    ("heads", "width", "most", "lengths", "kept"),
    [
        (12, 64, 197, (130, 180, 196), 197),
        (16, 64, 77, (65, 76), 77),
        (8, 80, 100, (65, 99), 100),
        (16, 64, 256, (140, 256), 150),  # a later node tells lengths up to 150 from others
    ],
)
def test_uniform_arrays_of_keys_end_in_memory(
    heads: int, width: int, most: int, lengths: tuple[int, ...], kept: int
) -> None:
    sketch = Sketch()
    x, out, part = (sketch.tensor(1, heads, size, width) for size in (most, most, kept))
    sketch.node("et_vk.sdpa.default", x, x, x, None, None, out)
    sketch.node("aten.slice_copy.Tensor", out, 2, 0, kept, 1, part)
    compiled = sketch.prepare([x], [part], TARGETS["software, uniform arrays"])
    for length in lengths:
        known = {dim_id(x.id, 2): length}
        plan = compiled.plan(((1, heads, length, width),), known)
        assert any(launch.module.kernel.name == "attention_uniform" for launch in plan.launches)
        assert not bindings_past_memory(compiled, plan, known)


def test_one_plan_of_masks_for_several_batches() -> None:
    """It has launches for 16 texts; those past the batch have no masks."""
    sketch = Sketch()
    x, mask, out = (sketch.tensor(*shape) for shape in ((32, 4, 64, 8), (32, 1, 1, 64), (32, 4, 64, 8)))
    sketch.node("et_vk.sdpa.default", x, x, x, mask, None, out)
    compiled = sketch.prepare([x, mask], [out], TARGETS["software, uniform arrays"])

    def known(batch: int) -> dict[int, int]:
        sizes = ((x, 0, batch), (x, 2, 60), (mask, 0, batch), (mask, 3, 60))
        return {dim_id(tensor.id, dim): size for tensor, dim, size in sizes}

    plan = compiled.plan(((13, 4, 60, 8), (13, 1, 1, 60)), known(13))
    assert any(launch.module.kernel.name == "attention_uniform" for launch in plan.launches)
    assert all(plan.numbers(known(batch)) is not None for batch in (9, 14, 16))


def test_few_plans_for_grids_of_several_rows() -> None:
    """Planes of more workgroups than the device allows on one axis."""
    sketch, drawn, kept = Sketch(), random.Random(0), list[Plan]()
    x, out = sketch.tensor(1, 64, 1024, 1024), sketch.tensor(1, 64, 1024, 1024)
    sketch.node("aten.relu.default", x, out)
    compiled = sketch.prepare([x], [out], replace(TARGETS["GPU"], binding_bytes_max=1 << 30))
    for _ in range(60):
        height, width = drawn.randint(2, 1024), drawn.randint(2, 1024)
        known = {dim_id(x.id, 2): height, dim_id(x.id, 3): width}
        made = compiled.plan(((1, 64, height, width),), known)
        found = next((plan for plan in kept if plan.numbers(known) is not None), None)
        assert list(evaluated(found or made, known)) == list(evaluated(made, known))
        across, rows, _ = made.launches[0].grid(made.numbers(known) or ())
        threads = across * rows * made.launches[0].module.workgroup[0]
        assert across <= compiled.target.workgroups_max
        assert threads * 4 >= 64 * height * width
        if found is None:
            kept.append(made)
    assert len(kept) <= 6


def test_few_plans_for_images_in_bands_of_rows() -> None:
    """Planes larger than a uniform array: bands begin at places that follow the width."""
    sketch, drawn, kept = Sketch(), random.Random(0), list[Plan]()
    x, out = sketch.tensor(1, 3, 200, 200), sketch.tensor(1, 8, 200, 200)
    options = (1, 1), (1, 1), (1, 1), False, (0, 0), 1
    sketch.node("aten.convolution.default", x, sketch.constant(8, 3, 3, 3), None, *options, out)
    compiled = sketch.prepare([x], [out], TARGETS["software, uniform arrays"])
    for _ in range(60):
        height, width = drawn.randint(120, 200), 2 * drawn.randint(60, 100)
        known = {dim_id(x.id, 2): height, dim_id(x.id, 3): width}
        made = compiled.plan(((1, 3, height, width),), known)
        found = next((plan for plan in kept if plan.numbers(known) is not None), None)
        assert list(evaluated(found or made, known)) == list(evaluated(made, known))
        assert {launch.module.kernel.name for launch in made.launches} == {"convolution_uniform"}
        if found is None:
            kept.append(made)
    assert len(kept) <= 24


def test_how_far_a_plan_reaches() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(99, 64), sketch.tensor(50, 64)
    sketch.node("aten.slice_copy.Tensor", x, 0, 0, 50, 1, out)
    plan = sketch.prepare([x], [out]).plan(((33, 64),), known := {dim_id(x.id, 0): 33})
    assert plan.reach(known, list(known), 99) == 49
    assert plan.reach(known, list(known), 2) == 2
    assert plan.reach(known, [], 99) == 99  # nothing ends it


def test_parts_of_long_rows_take_little_memory() -> None:
    sketch = Sketch()
    x, out = sketch.tensor(7, 20000), sketch.tensor(7, 20000)
    sketch.node("aten._log_softmax.default", x, 1, False, out)
    compiled = sketch.prepare([x], [out])
    plan = compiled.plan(((7, 19001),), {dim_id(x.id, 1): 19001})
    assert sum(plan.scratch_bytes) < 1000
    assert plan.numbers({dim_id(x.id, 1): 18999}) is not None
