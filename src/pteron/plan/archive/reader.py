"""Archive -> executable, every number checked against the table that it refers to."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields
from reprlib import repr as shortened
from typing import Any, TypeAlias, TypeVar, get_args

from pteron.dtypes import DType, Storage
from pteron.errors import FormatError
from pteron.format.source import contents
from pteron.graph import Constant
from pteron.ops import Target, Weight
from pteron.ops.operand import Slot, State
from pteron.ops.terms import Affine, Guard, Product, Quotient, Symbol, Term
from pteron.passes import Source
from pteron.plan.archive.writer import MAGIC, PREFIX, VERSION, aligned
from pteron.plan.executable import Executable, Port, StateSpec, SymbolPort, TensorPort
from pteron.plan.plan import IndexRange, Launch, ParameterBlock, Plan, PlanBuffer, ScratchRef
from pteron.wgsl import Binding, Kernel, Module
from pteron.wgsl.module import Access

Json: TypeAlias = Any
Item = TypeVar("Item")
_MOST = (1 << 63) - 1


def read(data: memoryview, name: str, *, trusted: bool = False) -> Executable:
    """The executable in a file's bytes; weights stay views into them. FormatError where it is none."""
    header, body = _split(data, name)
    try:
        return _Reader(header, body, trusted).executable()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        shown = repr(error)[:200]  # it may quote what the file holds
        raise FormatError(f"{name}: not an executable as Pteron writes it ({shown})") from error


def _split(data: memoryview, name: str) -> tuple[Json, memoryview]:
    if len(data) < PREFIX.size:
        raise FormatError(f"{name}: {len(data)} bytes are no executable")
    magic, version, length = PREFIX.unpack_from(contents(data[: PREFIX.size]))
    if magic != MAGIC or version != VERSION:
        raise FormatError(f"{name}: not an executable of version {VERSION}")
    end = PREFIX.size + length
    if end > len(data):
        raise FormatError(f"{name}: the header of {length:,} bytes is cut off")
    try:
        header = json.loads(bytes(contents(data[PREFIX.size : end])))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: the header is damaged ({error})") from error
    return header, data[aligned(end) :]


class _Reader:
    """Turns a header into an executable; checks every number against the table that it refers to."""

    def __init__(self, header: Json, body: memoryview, trusted: bool) -> None:
        self._header = header
        self._body = body
        self._modules = [_read_module(module, trusted) for module in header["modules"]]
        self._buffers: list[PlanBuffer] = []
        self._sizes: list[int | None] = []  # None: each plan says how large its scratch memory is
        self._states: dict[int, tuple[int, int | None]] = {}
        counts = {"slot": 0, "scratch": 0}
        for entry in header["buffers"]:
            self._buffers.append(self._buffer(entry, counts))
            self._sizes.append(None if entry["kind"] == "scratch" else _whole(entry["bytes"]))
        self._target = _read_target(header["target"])
        self._inputs = tuple(map(self._port, header["inputs"]))
        self._outputs = tuple(map(self._port, header["outputs"]))
        self._sources = tuple(map(self._source, header["sources"]))
        self._symbols = {source.symbol for source in self._sources}
        # Programs with the same weights share their buffers, so a call must not write to one.
        if any(isinstance(port, TensorPort) and isinstance(port.buffer, Weight) for port in self._inputs):
            raise ValueError("an input is bound to the buffer of a weight")

    def executable(self) -> Executable:
        header = self._header
        return Executable(
            name=str(header["name"]),
            target=self._target,
            inputs=self._inputs,
            outputs=self._outputs,
            sources=self._sources,
            slots=tuple(entry["bytes"] for entry in header["buffers"] if entry["kind"] == "slot"),
            states={id: self._state(size, first) for id, (size, first) in self._states.items()},
            once=self._plan(header["once"], is_once=True),
            plans={
                tuple(None if shape is None else _shape(shape) for shape in entry["shapes"]): [
                    self._plan(plan) for plan in entry["plans"]
                ]
                for entry in header["plans"]
            },
        )

    def _buffer(self, entry: Json, counts: dict[str, int]) -> PlanBuffer:
        kind = entry["kind"]
        if kind == "state":
            id = _whole(entry["id"])
            if id in self._states:
                raise ValueError(f"two states of one id, {id}")
            self._states[id] = (_whole(entry["bytes"]), entry["initial"])
            return State(id)
        if kind == "weight":
            return self._packed(entry)
        counts[kind] += 1
        return Slot(counts[kind] - 1) if kind == "slot" else ScratchRef(counts[kind] - 1)

    def _packed(self, entry: Json) -> Weight:
        start, length, size = (_whole(entry[name]) for name in ("offset", "length", "bytes"))
        storage = Storage(entry["storage"])
        if start + length > len(self._body) or length > size or size % storage.itemsize:
            raise ValueError(f"a weight of {length} bytes at {start} is outside the file")
        data = self._body[start : start + length]
        constant = Constant(str(entry["content"]), DType.U8, (length,), data)
        return Weight(
            constant, (length,), "packed", (str(entry["layout"]),), size // storage.itemsize, storage
        )

    def _state(self, size: int, number: int | None) -> StateSpec:
        first = None if number is None else _at(self._buffers, number)
        if first is not None and not (isinstance(first, Weight) and first.bytes <= size):
            raise ValueError("the initial value of a state is not a weight, or larger than the state")
        return StateSpec(size, first)

    def _port(self, entry: Json) -> Port:
        if "dtype" not in entry:
            return SymbolPort(_whole(entry["id"]))
        buffer, shape = _at(self._buffers, entry["buffer"]), _shape(entry["shape_max"])
        if isinstance(buffer, ScratchRef):
            raise ValueError("an input or output is in scratch memory")
        storage = Storage(entry["storage"])
        if math.prod(shape) * storage.itemsize > (self._sizes[entry["buffer"]] or 0):
            raise ValueError(f"a value of {shape} does not fit its buffer")
        return TensorPort(_whole(entry["id"]), DType(entry["dtype"]), shape, storage, buffer)

    def _source(self, entry: Json) -> Source:
        source = Source(**entry)
        _at(self._inputs, source.input)
        for number in (source.symbol, source.index, *([] if source.dim is None else [source.dim])):
            _whole(number, -_MOST)
        return source

    def _plan(self, entry: Json, *, is_once: bool = False) -> Plan:
        tape: list[Term] = []
        for term in entry["tape"]:
            tape.append(self._term(term, len(tape)))
        terms = len(tape)
        blocks = tuple(_read_block(block, terms) for block in entry["blocks"])
        scratch = tuple(map(_whole, entry["scratch_bytes"]))
        shapes = {_whole(id): _shape(shape) for id, shape in entry["shapes"]}
        integers = {_whole(id): _read_affine(terms, *value) for id, *value in entry["integers"]}
        for port in () if is_once else self._outputs:
            known = integers if isinstance(port, SymbolPort) else shapes
            if port.id not in known:
                raise ValueError(f"a plan without the output {port}")
            if isinstance(port, TensorPort) and math.prod(shapes[port.id]) > math.prod(port.shape_max):
                raise ValueError(f"an output of {shapes[port.id]} does not fit {port}")
        launches = tuple(self._launch(launch, blocks, scratch) for launch in entry["launches"])
        states = (isinstance(buffer, State) for launch in launches for buffer in launch.buffers)
        if is_once and (tape or any(states)):
            raise ValueError("the plan that runs once uses live integers or states")
        return Plan(
            launches=launches,
            blocks=blocks,
            scratch_bytes=scratch,
            shapes=shapes,
            integers=integers,
            tape=tuple(tape),
            guards=tuple(
                Guard(_read_affine(terms, constant, factors), _bound(low, -math.inf), _bound(high, math.inf))
                for constant, factors, low, high in entry["guards"]
            ),
            indices=tuple(_read_index(index) for index in entry["indices"]),
        )

    def _term(self, entry: Json, before: int) -> Term:
        """A term of a tape, made of those before it."""
        kind, *rest = entry
        if kind == "symbol":
            if rest[0] not in self._symbols:
                raise ValueError(f"a live integer {rest[0]} without a source")
            return Symbol(rest[0])
        left, right = _read_affine(before, *rest[:2]), _read_affine(before, *rest[2:])
        if kind not in ("product", "quotient"):
            raise ValueError(f"a term of kind {shortened(kind)}")
        return Product(left, right) if kind == "product" else Quotient(left, right)

    def _launch(self, entry: Json, blocks: Sequence[ParameterBlock], scratch: Sequence[int]) -> Launch:
        module, block = _at(self._modules, entry["module"]), entry["block"]
        if len(entry["buffers"]) != len(module.bindings):
            raise ValueError(f"{module.kernel.name} binds {len(module.bindings)} buffers")
        if (block is None) != (module.params_index is None):
            raise ValueError(f"{module.kernel.name}: its parameters do not match its launch")
        if block is not None and len(_at(blocks, block).data) < module.params_size:
            raise ValueError(f"{module.kernel.name} takes {module.params_size} bytes of parameters")
        x, y, z = (_whole(count, 0, self._target.workgroups_max) for count in entry["groups"])
        buffers = tuple(_at(self._buffers, number) for number in entry["buffers"])
        if any(isinstance(buffer, ScratchRef) and buffer.index >= len(scratch) for buffer in buffers):
            raise ValueError(f"{module.kernel.name} binds scratch memory that its plan lacks")
        for binding, buffer in zip(module.bindings, buffers, strict=True):
            if binding.access == "read_write" and isinstance(buffer, Weight):
                raise ValueError(f"{module.kernel.name} writes to a weight")
        starts = tuple((str(name), _whole(start)) for name, start in entry.get("starts", ()))
        node, nodes = _whole(entry["node"]), tuple(map(_whole, entry.get("nodes", ())))
        return Launch(node, str(entry["operator"]), module, buffers, block, (x, y, z), starts, nodes)


def _whole(value: Json, low: int = 0, high: int = _MOST) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{shortened(value)} is not a whole number from {low} to {high}")
    return value


def _at(table: Sequence[Item], number: Json) -> Item:
    return table[_whole(number, 0, len(table) - 1)]


def _shape(sizes: Json) -> tuple[int, ...]:
    return tuple(map(_whole, sizes))


def _bound(value: Json, default: float) -> float:
    return default if value is None else _whole(value, -_MOST - 1)


def _read_target(entry: Json) -> Target:
    target, default = Target(**entry), Target()
    for field in fields(Target):
        value = getattr(target, field.name)
        if type(value) is not type(getattr(default, field.name)) or value < 0:
            raise ValueError(f"a target with {field.name} = {shortened(value)}")
    return target


def _read_block(entry: Json, terms: int) -> ParameterBlock:
    data = bytes.fromhex(entry["data"])
    last = len(data) - 4
    live = ((_whole(offset, 0, last), _read_affine(terms, *value)) for offset, *value in entry["live"])
    return ParameterBlock(data, tuple(live))


def _read_index(entry: Json) -> IndexRange:
    index = IndexRange(**entry)
    for number in (index.input, index.low, index.high):
        _whole(number, -_MOST)
    return index


def _read_binding(entry: Json) -> Binding:
    binding = Binding(**entry)
    texts = binding.name, binding.access, binding.element
    if not all(isinstance(text, str) for text in texts) or binding.access not in get_args(Access):
        raise ValueError(f"a binding {shortened(entry)}")
    _whole(binding.bytes)
    return binding


def _read_module(entry: Json, trusted: bool) -> Module:
    bindings = tuple(map(_read_binding, entry["bindings"]))
    params_index, params_size = entry["params_index"], _whole(entry["params_size"])
    indices = [binding.index for binding in bindings] + ([] if params_index is None else [params_index])
    is_unique = len({_whole(index, 0, 999) for index in indices}) == len(indices)
    if not is_unique or (params_index is None) != (params_size == 0):
        raise ValueError(
            f"bindings of {shortened(entry['name'])} at {indices}, {params_size} bytes of parameters"
        )
    x, y, z = map(_whole, entry["workgroup"])
    return Module(
        kernel=Kernel("", str(entry["name"])),
        source=str(entry["source"]),
        bindings=bindings,
        params_index=params_index,
        fields=(),
        params_size=params_size,
        workgroup=(x, y, z),
        bounds_checks=not trusted or bool(entry["bounds_checks"]),
    )


def _read_affine(terms: int, constant: Json, factors: Json) -> Affine:
    """An expression over the first `terms` terms of a tape."""
    pairs = ((_whole(term, 0, terms - 1), _whole(factor, -_MOST - 1)) for term, factor in factors)
    return Affine(_whole(constant, -_MOST - 1), tuple(pairs))
