"""Executables -> JSON for the player, which only replays: plans, guards and expressions stay data.

Launches, parameter blocks and modules are tables that plans refer to by number: plans for other live shapes
and other buckets of a context share most of them. Blocks with live integers come first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.ops import Weight
from pteron.ops.operand import Slot, State
from pteron.ops.terms import Affine, Product, Symbol, Term
from pteron.plan import Advance, Executable, Launch, ParameterBlock, Plan, PlanBuffer, SymbolPort
from pteron.plan.executable import Port
from pteron.web.weights import Place
from pteron.wgsl import Module

Json: TypeAlias = Any


@dataclass(slots=True)
class ModuleTable:
    """The kernels of all executables of a variant, each once."""

    entries: list[Json] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, module: Module) -> int:
        source = module.portable_source
        if source not in self._numbers:
            self._numbers[source] = len(self.entries)
            bindings = [[each.index, each.access, each.bytes] for each in module.bindings]
            params = [] if module.params_index is None else [module.params_index, module.params_size]
            self.entries.append([module.kernel.name, _without_comments(source), bindings, params])
        return self._numbers[source]


def _without_comments(source: str) -> str:
    return re.sub(r"\n{2,}", "\n", re.sub(r"[ \t]*//[^\n]*", "", source)).lstrip()


class ExecutableWriter:
    """Numbers the buffers, blocks and launches of an executable."""

    def __init__(self, executable: Executable, places: Mapping[Weight, Place], modules: ModuleTable) -> None:
        self._executable = executable
        self._places = places
        self._modules = modules
        self.buffers = executable.number_buffers(executable.weights(with_initial=False))
        blocks = dict.fromkeys(block for plan in executable.all_plans() for block in plan.blocks)
        ordered = sorted(blocks, key=lambda block: not block.live)
        self._blocks = {block: number for number, block in enumerate(ordered)}
        self._launches: dict[str, int] = {}
        self._launch_entries: list[Json] = []

    def header(self, name: str, growth: Mapping[int, int] | None = None) -> Json:
        """The whole executable under a name: its own has the path of its file. `growth` of live integers per
        step, by value id, for loops that stay on the GPU."""
        executable = self._executable
        once = self.plan(executable.once)
        plans = [
            {"shapes": shapes, "plans": [self.plan(plan, growth) for plan in each]}
            for shapes, each in executable.plans.items()
        ]
        return {
            "name": name,
            "inputs": list(map(self._port, executable.inputs)),
            "outputs": list(map(self._port, executable.outputs)),
            "sources": [[each.symbol, each.input, each.dim, each.index] for each in executable.sources],
            "buffers": list(map(self._buffer, self.buffers)),
            "blocks": [_block(block) for block in self._blocks],
            "launches": self._launch_entries,
            "once": once,
            "plans": plans,
        }

    def plan(self, plan: Plan, growth: Mapping[int, int] | None = None) -> Json:
        """A plan by the numbers of its launches."""
        advance = Advance.of(plan, growth) if growth is not None else None
        written: Json = {
            "launches": [self._launch(launch, plan) for launch in plan.launches],
            "blocks": [self._blocks[block] for block in plan.blocks if block.live],
            "states": _state_launches(plan),
            "tape": list(map(_term, plan.tape)),
            "guards": [[_affine(g.expression), _bound(g.low), _bound(g.high)] for g in plan.guards],
            "shapes": list(plan.shapes.items()),
            "integers": [[id, _affine(value)] for id, value in plan.integers.items()],
            "indices": [[each.input, each.low, each.high, each.operator] for each in plan.indices],
        }
        if advance is not None:
            written["growth"] = [
                [self._blocks[plan.blocks[index]], offset // 4, by] for index, offset, by in advance.words
            ]
        return written

    def _launch(self, launch: Launch, plan: Plan) -> int:
        starts = dict(launch.starts)
        names = [binding.name for binding in launch.module.bindings]
        block = -1 if launch.block is None else self._blocks[plan.blocks[launch.block]]
        entry = [
            self._modules.number(launch.module),
            launch.groups,
            [self.buffers[buffer] for buffer in launch.buffers],
            block,
            [starts.get(name, 0) for name in names] if starts else [],
        ]
        key = repr(entry)
        if key not in self._launches:
            self._launches[key] = len(self._launch_entries)
            self._launch_entries.append(entry)
        return self._launches[key]

    def _buffer(self, buffer: PlanBuffer) -> Json:
        slack = self._executable.target.slack
        if isinstance(buffer, Slot):
            return ["slot", self._executable.slots[buffer.index] + slack]
        if isinstance(buffer, State):
            spec = self._executable.states[buffer.id]
            place = None if spec.initial is None else self._places.get(spec.initial)
            return ["state", spec.bytes, buffer.id, *(_place(place) if place else ())]
        if isinstance(buffer, Weight):
            return ["weight", buffer.bytes, 0, *_place(self._places[buffer])]
        plans = self._executable.all_plans()
        sizes = (plan.scratch_bytes[buffer.index : buffer.index + 1] for plan in plans)
        return ["scratch", max((size for found in sizes for size in found), default=0) + slack]

    def _port(self, port: Port) -> Json:
        if isinstance(port, SymbolPort):
            return {"id": port.id}
        return {
            "id": port.id,
            "dtype": str(port.dtype),
            "shape": port.shape_max,
            "storage": str(port.storage),
            "buffer": self.buffers[port.buffer],
        }


def _place(place: Place) -> list[int]:
    return [place.stream, place.offset, place.length]


def _state_launches(plan: Plan) -> int:
    """The launches up to the last that writes a state; all of them if none does."""
    writes = [
        index + 1
        for index, launch in enumerate(plan.launches)
        for binding, buffer in zip(launch.module.bindings, launch.buffers, strict=True)
        if isinstance(buffer, State) and binding.access == "read_write"
    ]
    return max(writes, default=len(plan.launches))


def _block(block: ParameterBlock) -> Json:
    return [block.data.hex(), *([offset // 4, _affine(value)] for offset, value in block.live)]


def _affine(value: Affine) -> Json:
    return [value.constant, *(number for pair in value.terms for number in pair)]


def _term(term: Term) -> Json:
    if isinstance(term, Symbol):
        return ["symbol", term.id]
    return ["product" if isinstance(term, Product) else "quotient", _affine(term.left), _affine(term.right)]


def _bound(number: float) -> int | None:
    return None if math.isinf(number) else int(number)
