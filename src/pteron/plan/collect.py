"""Dispatches -> launches: join neighbours, specialise kernels, name buffers, pack parameters, size grids."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple

from pteron.graph import Node, Shape
from pteron.ops import Dispatch, Operand, OperandSlice, RequirementError, Scratch, Target
from pteron.ops.dispatch import Bound, Parameter, elements
from pteron.ops.live import LiveInt, Trace
from pteron.ops.operand import BufferRef
from pteron.ops.rewrite import Join, memory_of
from pteron.ops.terms import Affine
from pteron.plan.plan import IndexRange, Launch, ParameterBlock, Plan, PlanBuffer, ScratchRef
from pteron.plan.verify import check_bindings, check_storage, storage_buffers, verify
from pteron.wgsl import Field, Module, compose, outline


class Collected(NamedTuple):
    node: Node
    dispatch: Dispatch
    module: Module
    buffers: tuple[PlanBuffer, ...]
    block: ParameterBlock | None
    groups: tuple[int, int, int]
    nodes: frozenset[int]


@dataclass(slots=True)
class Collector:
    """Collects the launches of a plan; equal parameter blocks are stored once."""

    target: Target
    joins: Sequence[Join] = ()
    launches: list[Collected] = field(default_factory=list)
    scratch_bytes: list[int] = field(default_factory=list)
    _scratch: dict[Scratch, int] = field(default_factory=dict)  # indices of a node's scratch buffers
    _proven: set[tuple[object, ...]] = field(default_factory=set)

    def add(
        self,
        node: Node,
        dispatches: Iterable[Dispatch],
        is_read: Callable[[Operand], bool] = lambda _: True,
        nodes: Iterable[int] = (),
    ) -> None:
        """Add one node's dispatches. `is_read` says whether later nodes read the memory of a tensor; `nodes`
        are the other nodes whose work they do."""
        all_nodes = frozenset({node.index, *nodes})
        launched = [each for each in dispatches if each.threads != 0 and 0 not in (each.groups or ())]
        if launched:
            before, self._scratch = self._scratch, {}
        for position, dispatch in enumerate(launched):
            is_read_later = partial(_is_read, launched[position + 1 :], is_read)
            if joined := self._joined(dispatch, is_read_later):
                # This launch still uses the scratch memory of the previous node.
                self._scratch = {
                    each: index for each, index in before.items() if _binds(joined, each)
                } | self._scratch
                last = self.launches.pop()
                self._launch(last.node, joined, last.nodes | all_nodes)
            else:
                self._launch(node, dispatch, all_nodes)

    def _launch(self, node: Node, dispatch: Dispatch, nodes: frozenset[int]) -> None:
        module = _module(dispatch)
        groups = _groups(dispatch, module, self.target)
        check_bindings(module, self.target)
        buffers = tuple(self._buffer(dispatch.bindings[binding.name]) for binding in module.bindings)
        block = block_of(dispatch, module) if module.params_index is not None else None
        self._prove(dispatch, module, groups, block)
        self.launches.append(Collected(node, dispatch, module, buffers, block, groups, nodes))

    def _joined(self, dispatch: Dispatch, is_read: Callable[[Bound], bool]) -> Dispatch | None:
        """One launch for the previous dispatch and this one, if a join applies."""
        if not self.launches:
            return None
        found = (join(self.launches[-1].dispatch, dispatch, is_read) for join in self.joins)
        return next((joined for joined in found if joined and _is_sound(joined, self.target)), None)

    def finish(
        self,
        shapes: Mapping[int, Shape],
        integers: Mapping[int, Affine],
        trace: Trace,
        indices: tuple[IndexRange, ...],
    ) -> Plan:
        """The plan, its live blocks first."""
        blocks = dict.fromkeys(each.block for each in self.launches if each.block is not None)
        ordered = sorted(blocks, key=lambda block: not block.live)
        index_of = {block: index for index, block in enumerate(ordered)}
        launches = []
        for node, dispatch, module, buffers, block, groups, nodes in self.launches:
            index, starts = index_of[block] if block else None, _starts(dispatch)
            launches.append(
                Launch(node.index, node.name, module, buffers, index, groups, starts, tuple(sorted(nodes)))
            )
        return Plan(
            launches=tuple(launches),
            blocks=tuple(ordered),
            scratch_bytes=tuple(self.scratch_bytes),
            shapes=shapes,
            integers=integers,
            tape=trace.tape,
            guards=trace.guards(),
            indices=indices,
        )

    def _prove(
        self, dispatch: Dispatch, module: Module, groups: tuple[int, int, int], block: ParameterBlock | None
    ) -> None:
        """Verify a launch once per shape: layers of a model differ only in their weights."""
        if module.bounds_checks and not self.target.loop_max:
            return
        sizes = tuple([elements(dispatch.bindings[binding.name]) for binding in module.bindings])
        launch = (id(module), groups, block, sizes)
        if launch not in self._proven:
            verify(dispatch, module, groups, self.target)
            self._proven.add(launch)

    def _buffer(self, bound: Bound) -> PlanBuffer:
        buffer = memory_of(bound)
        if not isinstance(buffer, Scratch):
            return buffer
        taken = self._scratch.values()
        index = self._scratch.setdefault(buffer, next(index for index in count() if index not in taken))
        if index == len(self.scratch_bytes):
            self.scratch_bytes.append(0)
        self.scratch_bytes[index] = max(self.scratch_bytes[index], buffer.count * buffer.storage.itemsize)
        return ScratchRef(index)


def _is_sound(joined: Dispatch, target: Target) -> bool:
    """Whether a launch binds no written buffer twice, and no more buffers than the device allows."""
    module = _module(joined)
    memories = [memory_of(joined.bindings[binding.name]) for binding in module.bindings]
    written = [
        memory
        for memory, binding in zip(memories, module.bindings, strict=True)
        if binding.access == "read_write"
    ]
    return storage_buffers(module) <= target.buffers_max and all(
        memories.count(memory) == 1 for memory in written
    )


def _is_read(rest: Sequence[Dispatch], by_later_nodes: Callable[[Operand], bool], bound: Bound) -> bool:
    """Whether a remaining dispatch of the node binds it or, unless it is scratch memory, a later node reads
    it."""
    memory = memory_of(bound)
    if any(_binds(dispatch, memory) for dispatch in rest):
        return True
    return isinstance(bound, Operand) and not isinstance(memory, Scratch) and by_later_nodes(bound)


def _binds(dispatch: Dispatch, memory: BufferRef | Scratch) -> bool:
    return any(memory_of(bound) == memory for bound in dispatch.bindings.values())


def _starts(dispatch: Dispatch) -> tuple[tuple[str, int], ...]:
    slices = ((name, bound) for name, bound in dispatch.bindings.items() if isinstance(bound, OperandSlice))
    return tuple((name, each.start) for name, each in slices if each.start)


def _module(dispatch: Dispatch) -> Module:
    """The kernel's module, with element aliases set to the types of the bound tensors."""
    draft = outline(dispatch.kernel)
    needed = {binding.name for binding in draft.bindings}
    if needed != dispatch.bindings.keys():
        raise ValueError(
            f"kernel {dispatch.kernel} binds {sorted(needed)}, the dispatch gives {sorted(dispatch.bindings)}"
        )
    elements: dict[str, str] = {}
    for binding in draft.bindings:
        bound = dispatch.bindings[binding.name]
        storage = str(bound.storage)
        if binding.element not in draft.aliases:
            check_storage(dispatch.kernel.name, binding, bound)
            continue
        if elements.setdefault(binding.element, storage) != storage:
            shown = ", ".join(f"{name}: {value}" for name, value in dispatch.bindings.items())
            raise RequirementError(
                f"kernel {dispatch.kernel.name} takes one element type for several operands; got {shown}"
            )
    return compose(dispatch.kernel.specialise(**elements) if elements else dispatch.kernel)


def _groups(dispatch: Dispatch, module: Module, target: Target) -> tuple[int, int, int]:
    """Workgroups per axis; a long row of them is folded into a near-equal rectangle."""
    if dispatch.groups is not None:
        if max(dispatch.groups) > target.workgroups_max:
            raise RequirementError(
                f"kernel {dispatch.kernel.name} needs {dispatch.groups} workgroups, "
                f"the adapter allows {target.workgroups_max} per axis"
            )
        return dispatch.groups
    assert dispatch.threads is not None
    count = -(-dispatch.threads // module.workgroup[0])
    rows = -(-count // target.workgroups_max)
    if rows > target.workgroups_max:
        raise RequirementError(
            f"kernel {dispatch.kernel.name} needs {count} workgroups, "
            f"the adapter allows {target.workgroups_max} per axis, on two axes"
        )
    return (-(-count // rows), rows, 1) if rows > 1 else (count, 1, 1)


_CODES = {"u32": "<I", "i32": "<i"}
_I32_MAX = (1 << 31) - 1
_F32_MAX = 3.4028234663852886e38


def block_of(dispatch: Dispatch, module: Module) -> ParameterBlock:
    """The block that a dispatch gives; it names every member of Params, and nothing else."""
    names = {field.name for field in module.fields}
    if names != dispatch.parameters.keys():
        raise ValueError(
            f"kernel {dispatch.kernel} has the parameters {sorted(names)}, "
            f"the dispatch gives {sorted(dispatch.parameters)}"
        )
    data = bytearray(module.params_size)
    live: list[tuple[int, Affine]] = []
    for field_ in module.fields:
        _pack(field_, dispatch.parameters[field_.name], data, live)
    return ParameterBlock(bytes(data), tuple(live))


def _pack(field_: Field, value: Parameter, data: bytearray, live: list[tuple[int, Affine]]) -> None:
    scalars = list(value) if isinstance(value, Sequence) else [value]
    if len(scalars) > field_.count:
        raise RequirementError(f"{field_.name} takes at most {field_.count} values, got {len(scalars)}")
    for position, scalar in enumerate(scalars):
        offset = field_.offset + 4 * position
        if field_.scalar == "f32":
            struct.pack_into("<f", data, offset, _saturated(float(scalar)))
        elif isinstance(scalar, LiveInt):
            if scalar < (0 if field_.scalar == "u32" else -_I32_MAX - 1) or scalar > _I32_MAX:
                raise RequirementError(f"{field_.name} = {scalar} does not fit {field_.scalar}")
            live.append((offset, scalar.expression))
        else:
            try:
                struct.pack_into(_CODES[field_.scalar], data, offset, int(scalar))
            except struct.error:
                raise RequirementError(f"{field_.name} = {scalar} does not fit {field_.scalar}") from None


def _saturated(number: float) -> float:
    """Within f32: exporters write the largest f64 where they mean no limit."""
    return number if math.isinf(number) or math.isnan(number) else min(max(number, -_F32_MAX), _F32_MAX)
