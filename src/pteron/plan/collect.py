"""Dispatches -> launches: join neighbours, specialise kernels, name buffers, pack parameters, size grids."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from pteron.graph import Node
from pteron.ops import Dispatch, Operand, OperandSlice, RequirementError, Scratch, Target
from pteron.ops.dispatch import Bound, Parameter
from pteron.ops.live import AnyInt, LiveInt, Trace, bucket, most, settled
from pteron.ops.operand import BufferRef, Slot, State
from pteron.ops.rewrite import Join, memory_of
from pteron.ops.terms import Affine
from pteron.plan.plan import IndexRange, Launch, ParameterBlock, Plan, PlanBuffer, ScratchRef
from pteron.plan.repeats import Exchange, rebind
from pteron.plan.verify import check_bindings, check_storage, storage_buffers, verify
from pteron.wgsl import Field, Kernel, Module, compose, outline

Grid: TypeAlias = tuple[AnyInt, AnyInt, AnyInt]


class Collected(NamedTuple):
    node: Node
    dispatch: Dispatch
    module: Module
    buffers: tuple[PlanBuffer, ...]
    block: ParameterBlock | None
    groups: Grid
    nodes: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Joined:
    """What became of two dispatches, and what was asked on the way; bindings are (is of the second, name)."""

    pair: tuple[Dispatch, Dispatch]
    joined: Dispatch | None
    same: tuple[int, ...]  # which of the first's bindings is the memory of each of the second's
    bindings: dict[str, tuple[bool, str]] | None  # of the joined dispatch; None: not only theirs
    asked: list[tuple[tuple[bool, str] | None, bool]]

    @classmethod
    def of(
        cls, first: Dispatch, second: Dispatch, joined: Dispatch | None, asked: list[tuple[Bound, bool]]
    ) -> _Joined:
        same = _same(first, second)
        if joined is None and not asked:
            return cls((first, second), None, same, None, [])
        places = {id(bound): (False, name) for name, bound in first.bindings.items()}
        places |= {id(bound): (True, name) for name, bound in second.bindings.items()}
        bindings = None
        if joined is not None and all(id(bound) in places for bound in joined.bindings.values()):
            bindings = {name: places[id(bound)] for name, bound in joined.bindings.items()}
        questions = [(places.get(id(bound)), answer) for bound, answer in asked]
        return cls((first, second), joined, same, bindings, questions)

    def repeats(self, first: Dispatch, second: Dispatch, is_read: Callable[[Bound], bool]) -> bool:
        """Whether two like dispatches become the same."""
        if (self.joined is not None and self.bindings is None) or _same(first, second) != self.same:
            return False
        return all(
            place is not None and is_read(_at(first, second, place)) == answer for place, answer in self.asked
        )

    def rebind(self, first: Dispatch, second: Dispatch) -> Dispatch:
        assert self.joined is not None
        assert self.bindings is not None
        return rebind(self.joined, {name: _at(first, second, place) for name, place in self.bindings.items()})


def _at(first: Dispatch, second: Dispatch, place: tuple[bool, str]) -> Bound:
    return (second if place[0] else first).bindings[place[1]]


def _same(first: Dispatch, second: Dispatch) -> tuple[int, ...]:
    places: dict[object, int] = {}
    for number, bound in enumerate(first.bindings.values()):
        places.setdefault(_memory_key(bound), number)
    return tuple([places.get(_memory_key(bound), -1) for bound in second.bindings.values()])


def _memory_key(bound: Bound) -> object:
    memory = memory_of(bound)
    return memory if isinstance(memory, (Slot, State)) else id(memory)


@dataclass(slots=True)
class Collector:
    """Collects the launches of a plan; equal parameter blocks are stored once."""

    target: Target
    joins: Sequence[Join] = ()
    launches: list[Collected] = field(default_factory=list)
    scratch: list[dict[tuple[int, int], Scratch]] = field(default_factory=list)  # of each buffer, by size
    _scratch: dict[Scratch, int] = field(default_factory=dict)  # indices of a node's scratch buffers
    _made: dict[tuple[int, int], tuple[Dispatch, Module, ParameterBlock | None, Grid]] = field(
        default_factory=dict
    )
    _joins: dict[tuple[int, ...], list[_Joined]] = field(default_factory=dict)

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
        launched = [each for each in dispatches if not _is_empty(each)]
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

    def rename_scratch(self, exchange: Exchange) -> None:
        """Know the last node's scratch memory by what takes its place in a repetition."""
        self._scratch = {exchange.scratch(each): index for each, index in self._scratch.items()}

    def _launch(self, node: Node, dispatch: Dispatch, nodes: frozenset[int]) -> None:
        # A dispatch with the kernel and the parameters of an earlier one repeats it (repeats.py).
        like = id(dispatch.kernel), id(dispatch.parameters)
        if like in self._made:
            _, module, block, groups = self._made[like]
        else:
            module = _module(dispatch)
            groups = _groups(dispatch, module, self.target)
            check_bindings(module, self.target)
            block = block_of(dispatch, module) if module.params_index is not None else None
            verify(dispatch, module, groups, self.target)
            self._made[like] = dispatch, module, block, groups
        buffers = tuple([self._buffer(dispatch.bindings[binding.name]) for binding in module.bindings])
        self.launches.append(Collected(node, dispatch, module, buffers, block, groups, nodes))

    def _joined(self, dispatch: Dispatch, is_read: Callable[[Bound], bool]) -> Dispatch | None:
        """One launch for the previous dispatch and this one, if a join applies."""
        if not self.launches:
            return None
        last = self.launches[-1].dispatch
        like = id(last.kernel), id(last.parameters), id(dispatch.kernel), id(dispatch.parameters)
        for before in self._joins.get(like, ()):
            if before.repeats(last, dispatch, is_read):
                return before.joined and before.rebind(last, dispatch)
        asked: list[tuple[Bound, bool]] = []

        def ask(bound: Bound) -> bool:
            asked.append((bound, is_read(bound)))
            return asked[-1][1]

        found = (join(last, dispatch, ask) for join in self.joins)
        joined = next((joined for joined in found if joined and _is_sound(joined, self.target)), None)
        self._joins.setdefault(like, []).append(_Joined.of(last, dispatch, joined, asked))
        return joined

    def finish(
        self,
        shapes: Mapping[int, tuple[int | Affine, ...]],
        integers: Mapping[int, Affine],
        trace: Trace,
        indices: tuple[IndexRange, ...],
    ) -> Plan:
        """The plan, its live blocks first."""
        made = {id(each.block): each.block for each in self.launches if each.block is not None}
        blocks = dict.fromkeys(made.values())
        ordered = sorted(blocks, key=lambda block: not block.live)
        index_of = {block: index for index, block in enumerate(ordered)}
        launches = []
        known: dict[int, Any] = {}  # of dispatches and sets of nodes, which launches share
        for node, dispatch, module, buffers, block, groups, nodes in self.launches:
            if id(dispatch) not in known:
                index = index_of[block] if block else None
                known[id(dispatch)] = index, _data(groups), _starts(dispatch)
            if id(nodes) not in known:
                known[id(nodes)] = tuple(sorted(nodes))
            own = *known[id(dispatch)], known[id(nodes)]
            launches.append(Launch(node.index, node.name, module, buffers, *own))
        return Plan(
            launches=tuple(launches),
            blocks=tuple(ordered),
            scratch_bytes=self._scratch_bytes(),
            shapes=shapes,
            integers=integers,
            tape=trace.tape,
            guards=trace.guards(),
            indices=indices,
        )

    def _scratch_bytes(self) -> tuple[int, ...]:
        """The size of each scratch buffer. Decisions after a launch may leave less of a tensor than there was
        when its uniform arrays were placed: these must end in the slack."""
        needed = [max(map(_bytes, sizes.values())) for sizes in self.scratch]
        for each in self.launches if self.target.slack else ():
            for binding, buffer in zip(each.module.bindings, each.buffers, strict=True):
                bound = each.dispatch.bindings[binding.name]
                if isinstance(bound, OperandSlice) and isinstance(buffer, ScratchRef) and binding.bytes:
                    end = most(bound.start) + binding.bytes - self.target.slack
                    needed[buffer.index] = max(needed[buffer.index], end)
        return tuple(needed)

    def _buffer(self, bound: Bound) -> PlanBuffer:
        buffer = memory_of(bound)
        if not isinstance(buffer, Scratch):
            return buffer
        taken = self._scratch.values()
        index = self._scratch.setdefault(buffer, next(index for index in count() if index not in taken))
        if index == len(self.scratch):
            self.scratch.append({})
        self.scratch[index].setdefault((id(buffer.count), buffer.storage.itemsize), buffer)
        return ScratchRef(index)


def _bytes(scratch: Scratch) -> int:
    return most(scratch.count * scratch.storage.itemsize)


def _is_empty(dispatch: Dispatch) -> bool:
    """Whether it has no invocation at any shape that the plan is for. Takes no decision."""
    sizes = dispatch.groups if dispatch.threads is None else (dispatch.threads,)
    return any(each.most == 0 if isinstance(each, LiveInt) else each == 0 for each in sizes or ())


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


def _starts(dispatch: Dispatch) -> tuple[tuple[str, int | Affine], ...]:
    slices = ((name, bound) for name, bound in dispatch.bindings.items() if isinstance(bound, OperandSlice))
    starts = ((name, settled(each.start)) for name, each in slices)
    return tuple((name, _datum(start)) for name, start in starts if isinstance(start, LiveInt) or start)


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
    return compose(_specialised(dispatch.kernel, tuple(elements.items())))


@cache
def _specialised(kernel: Kernel, elements: tuple[tuple[str, str], ...]) -> Kernel:
    return kernel.specialise(**dict(elements)) if elements else kernel


def _data(grid: Grid) -> tuple[int | Affine, int | Affine, int | Affine]:
    """A grid as data: plain numbers, and expressions of live dims."""
    x, y, z = map(_datum, grid)
    return x, y, z


def _datum(value: AnyInt) -> int | Affine:
    return value.expression if isinstance(value, LiveInt) else value


def _groups(dispatch: Dispatch, module: Module, target: Target) -> Grid:
    """Workgroups per axis; a long row of them is folded into a near-equal rectangle."""
    if dispatch.groups is not None:
        if any(each > target.workgroups_max for each in dispatch.groups):
            raise RequirementError(
                f"kernel {dispatch.kernel.name} needs {dispatch.groups} workgroups, "
                f"the adapter allows {target.workgroups_max} per axis"
            )
        x, y, z = map(settled, dispatch.groups)
        return x, y, z
    assert dispatch.threads is not None
    count = settled(-(-dispatch.threads // module.workgroup[0]))
    if count <= target.workgroups_max:
        return count, 1, 1
    needed = -(-count // target.workgroups_max)
    rows = bucket(needed) if isinstance(needed, LiveInt) else needed
    if rows > target.workgroups_max:
        raise RequirementError(
            f"kernel {dispatch.kernel.name} needs {count} workgroups, "
            f"the adapter allows {target.workgroups_max} per axis, on two axes"
        )
    return -(-count // rows), rows, 1


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
