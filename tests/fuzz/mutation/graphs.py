"""Changes to delegate graphs that leave most of them sound: other sizes everywhere at once, other arguments,
other operators of a kind, other memory, graphs joined where their tensors are alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache, lru_cache
from random import Random

import pteron.families  # noqa: F401  # registers the operators
from fuzz.draft import Draft
from fuzz.mutation.havoc import EDGES
from pteron.dtypes import DType
from pteron.errors import PteronError
from pteron.format.records import VkSymInt, VkTensor, VkValue, VkValueList
from pteron.ops import OPERATORS

_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 33, 64, 65, 127, 128, 129, 256, 257, 1009)
_FAR = (4099, 65_535, 65_536, 1 << 20, 1 << 30, (1 << 32) - 1)
_TYPES = (DType.F32, DType.F16, DType.I32, DType.I64, DType.BOOL, DType.I8, DType.U8)
_BYTES_MAX = 1 << 18
Change = Callable[[Draft, Random, Draft], None]


def mutate_graph(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
    """A graph with one change; what is no graph stays as it is."""
    draft, mate = _draft(data), _draft(other())
    if draft is None or mate is None:
        return data
    draft = deepcopy(draft)
    random.choices(_CHANGES, _WEIGHTS)[0](draft, random, mate)
    blob = draft.compact().blob()
    return blob if len(blob) <= _BYTES_MAX else data


@lru_cache(maxsize=1024)
def _draft(data: bytes) -> Draft | None:
    try:
        return Draft.of(data)
    except PteronError:
        return None


def _without(draft: Draft, index: int) -> Draft:
    """The graph less a node, whose outputs become inputs."""
    copy = deepcopy(draft)
    _, args = copy.nodes.pop(index)
    made = copy.values[args[-1]]
    copy.inputs += [
        id
        for id in (made.items if isinstance(made, VkValueList) else (args[-1],))
        if id >= 0 and isinstance(copy.values[id], (VkTensor, VkSymInt)) and id not in copy.inputs
    ]
    return copy


# Changes ----------------------------------------------------------------------------------------


def _size_everywhere(draft: Draft, random: Random, mate: Draft) -> None:
    """One size becomes another in every tensor and argument, as if the model had been made so."""
    sizes = [size for id in draft.tensors() for size in draft.tensor(id).dims]
    if sizes:
        _exchange(draft, random.choice(sizes), random.choice(_SIZES))


def _exchange(draft: Draft, before: int, after: int) -> None:
    for id, value in enumerate(draft.values):
        if isinstance(value, VkTensor) and before in value.dims:
            draft.resize(id, tuple(after if size == before else size for size in value.dims))
        elif (
            isinstance(value, tuple) and before in value and not any(isinstance(item, bool) for item in value)
        ):
            draft.values[id] = tuple(after if item == before else item for item in value)
        elif type(value) is int and value == before and before > 1:
            draft.values[id] = after


def _size_of_one(draft: Draft, random: Random, mate: Draft) -> None:
    """A tensor claims another shape than the rest of the graph has."""
    ids = draft.tensors()
    if not ids:
        return
    id = random.choice(ids)
    dims = list(draft.tensor(id).dims)
    match random.randrange(4):
        case 0 if dims:
            dims.pop(random.randrange(len(dims)))
        case 1:
            dims.insert(random.randrange(len(dims) + 1), random.choice((1, 2, 3)))
        case _ if dims:
            size = random.choice(
                (random.choice(_SIZES), random.choice(_FAR)) if random.random() < 0.3 else _SIZES
            )
            dims[random.randrange(len(dims))] = size
    draft.resize(id, tuple(dims))


def _border_size(draft: Draft, random: Random, mate: Draft) -> None:
    """Inputs and what is made of them get room: a dim's maximum grows in all that are not constants."""
    free = [id for id in draft.tensors() if draft.tensor(id).constant_id is None]
    sizes = [size for id in free for size in draft.tensor(id).dims]
    if not sizes:
        return
    before, after = random.choice(sizes), random.choice(_SIZES)
    for id in free:
        draft.resize(id, tuple(after if size == before else size for size in draft.tensor(id).dims))


def _type(draft: Draft, random: Random, mate: Draft) -> None:
    """Another element type, of one tensor or of all that share its own."""
    ids = draft.tensors()
    if not ids:
        return
    id, dtype = random.choice(ids), random.choice(_TYPES)
    before = draft.tensor(id).dtype
    for each in ids if random.random() < 0.5 else [id]:
        if draft.tensor(each).dtype is before:
            draft.resize(each, draft.tensor(each).dims, dtype)


def _argument(draft: Draft, random: Random, mate: Draft) -> None:
    """A plain argument takes another value of its kind."""
    plain = [id for id, value in enumerate(draft.values) if not isinstance(value, (VkTensor, VkValueList))]
    if plain:
        id = random.choice(plain)
        draft.values[id] = _near(draft.values[id], random)


def _near(value: VkValue, random: Random) -> VkValue:
    match value:
        case bool():
            return not value
        case int():
            near = (value - 1, value + 1, -value, 0, 1, 2, -1)
            return random.choice((*near, random.choice(_SIZES), random.choice(EDGES) - 2**32))
        case float():
            return random.choice(
                (0.0, 1.0, -value, value * 1.5, 1e38, -1e308, 1e-320, float("nan"), float("inf"), 127.0)
            )
        case str():
            return random.choice(
                ("", "none", "tanh", "relu", "floor", "trunc", "SYMMETRIC", "ASYMMETRIC", value * 2)
            )
        case tuple():
            items = list(value)
            match random.randrange(4):
                case 0 if items:
                    items.pop(random.randrange(len(items)))
                case 1:
                    items.insert(random.randrange(len(items) + 1), random.choice((0, 1, 2, -1)))
                case 2:
                    random.shuffle(items)
                case _ if items:
                    index = random.randrange(len(items))
                    items[index] = _near(items[index], random)  # type: ignore[assignment]
            return tuple(items)
        case VkSymInt(number):
            return random.choice((VkSymInt(0), VkSymInt((number + 1) % 2**31), number))
    return random.choice((None, 0, 1, 0.5, True, (), (1, 2), "none", VkSymInt(3)))


def _other_value(draft: Draft, random: Random, mate: Draft) -> None:
    """An argument of a node refers to another value, most likely of the same class."""
    if not draft.nodes:
        return
    _, args = random.choice(draft.nodes)
    place = random.randrange(len(args))
    kind = type(draft.values[args[place]])
    alike = [id for id, value in enumerate(draft.values) if isinstance(value, kind)]
    args[place] = random.choice(alike if random.random() < 0.85 else range(len(draft.values)))


def _none(draft: Draft, random: Random, mate: Draft) -> None:
    """An argument that may be left out is, or one that was left out is given."""
    draft.values.append(None)
    if draft.nodes:
        _, args = random.choice(draft.nodes)
        absent = [place for place, id in enumerate(args[:-1]) if draft.values[id] is None]
        if absent and random.random() < 0.7:
            args[random.choice(absent)] = random.randrange(len(draft.values))
        else:
            args[random.randrange(len(args))] = len(draft.values) - 1


def _operator(draft: Draft, random: Random, mate: Draft) -> None:
    """Another operator that takes as many arguments."""
    if draft.nodes:
        index = random.randrange(len(draft.nodes))
        name, args = draft.nodes[index]
        draft.nodes[index] = (random.choice(_alike(name)), args)


@cache
def _alike(name: str) -> list[str]:
    """Operators with the kinds of arguments that one has, or at least as many."""
    if name not in OPERATORS:
        return list(OPERATORS)
    signature = OPERATORS[name].signature
    kinds = [argument.kind for argument in signature.arguments]
    same = [other for other, o in OPERATORS.items() if [a.kind for a in o.signature.arguments] == kinds]
    return (
        same
        if len(same) > 1
        else [o for o, x in OPERATORS.items() if len(x.signature.arguments) == len(kinds)]
    )


def _nodes(draft: Draft, random: Random, mate: Draft) -> None:
    """A node more, less, or in another place."""
    if not draft.nodes:
        return
    index = random.randrange(len(draft.nodes))
    match random.randrange(4):
        case 0 | 1:
            less = _without(draft, index)
            draft.nodes, draft.inputs = less.nodes, less.inputs
        case 2:
            draft.nodes.insert(random.randrange(len(draft.nodes) + 1), draft.nodes.pop(index))
        case 3:
            _again(draft, index)


def _again(draft: Draft, index: int) -> None:
    """A node once more, on the same inputs, its result an output."""
    name, args = draft.nodes[index]
    made = draft.values[args[-1]]
    if isinstance(made, VkTensor):
        draft.values.append(replace(made, memory_id=None))
        draft.nodes.insert(index + 1, (name, [*args[:-1], len(draft.values) - 1]))
        draft.outputs.append(len(draft.values) - 1)


def _memory(draft: Draft, random: Random, mate: Draft) -> None:
    """Tensors share memory in another way."""
    for id in draft.tensors():
        if random.random() < 0.5:
            memory = random.choice((None, 0, 0, 1, 1, 2, 3))
            draft.values[id] = replace(draft.tensor(id), memory_id=memory)


def _border(draft: Draft, random: Random, mate: Draft) -> None:
    """Something inside leaves too, or a constant enters from outside, or the order changes."""
    ids = draft.tensors()
    if not ids:
        return
    id = random.choice(ids)
    match random.randrange(4):
        case 0:
            draft.outputs.append(id)
        case 1 if draft.tensor(id).constant_id is not None:
            draft.values[id] = replace(draft.tensor(id), constant_id=None)
            draft.inputs.append(id)
        case 1 if id in draft.inputs:
            draft.constants.append(b"\1")
            draft.values[id] = replace(draft.tensor(id), constant_id=len(draft.constants) - 1)
            draft.inputs.remove(id)
            draft.resize(id, draft.tensor(id).dims)
        case 2:
            random.shuffle(draft.inputs)
        case _:
            random.shuffle(draft.outputs)


def _constant(draft: Draft, random: Random, mate: Draft) -> None:
    """Other bytes in a constant: indices, scales and weights of any value."""
    if draft.constants:
        index = random.randrange(len(draft.constants))
        data = bytearray(draft.constants[index])
        for _ in range(min(len(data), random.choice((1, 4, 64)))):
            data[random.randrange(len(data))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
        draft.constants[index] = bytes(data)


def _join(draft: Draft, random: Random, mate: Draft) -> None:
    """Another graph behind this one, fed by it where tensors are alike."""
    start, constants = len(draft.values), len(draft.constants)
    mate = deepcopy(mate)
    fed: dict[int, int] = {}
    made: dict[tuple[DType, tuple[int, ...]], list[int]] = defaultdict(list)
    for id in draft.tensors():
        if draft.tensor(id).constant_id is None:
            made[draft.tensor(id).dtype, draft.tensor(id).dims].append(id)
    for id in mate.inputs:
        value = mate.values[id]
        if isinstance(value, VkTensor) and (alike := made.get((value.dtype, value.dims))):
            fed[id] = random.choice(alike)

    def moved(id: int) -> int:
        return fed.get(id, start + id) if id >= 0 else id

    for value in mate.values:
        if isinstance(value, VkValueList):
            value = VkValueList(tuple(map(moved, value.items)))
        elif isinstance(value, VkTensor):
            constant = None if value.constant_id is None else value.constant_id + constants
            memory = None if value.memory_id is None else value.memory_id + random.choice((0, 100))
            value = replace(value, constant_id=constant, memory_id=memory)
        draft.values.append(value)
    draft.constants += mate.constants
    draft.nodes += [(name, list(map(moved, args))) for name, args in mate.nodes]
    draft.inputs += [start + id for id in mate.inputs if id not in fed]
    draft.outputs += [moved(id) for id in mate.outputs if moved(id) not in draft.inputs]


_CHANGES: tuple[Change, ...] = (
    _size_everywhere,
    _border_size,
    _size_of_one,
    _type,
    _argument,
    _other_value,
    _none,
    _operator,
    _nodes,
    _memory,
    _border,
    _constant,
    _join,
)
_WEIGHTS = (8, 4, 4, 4, 10, 6, 3, 4, 4, 3, 3, 3, 8)
