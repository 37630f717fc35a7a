"""Archive -> executable, every number checked against the table that it refers to."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from pteron.dtypes import DType, Storage
from pteron.errors import FormatError
from pteron.graph import Constant
from pteron.ops import Target, Weight
from pteron.ops.operand import Slot, State
from pteron.ops.terms import Affine, Guard, Product, Quotient, Symbol, Term
from pteron.passes import Source
from pteron.plan.archive.container import MAGIC, PREFIX, VERSION, aligned
from pteron.plan.executable import Executable, Port, StateSpec, SymbolPort, TensorPort
from pteron.plan.plan import IndexRange, Launch, ParameterBlock, Plan, PlanBuffer, ScratchRef
from pteron.wgsl import Binding, Kernel, Module, Statements

Json: TypeAlias = Any


def read(data: memoryview, name: str, *, trusted: bool = False) -> Executable:
    """The executable in a file's bytes; weights stay views into them. FormatError where it is none."""
    header, body = _split(data, name)
    try:
        return _Reader(header, body, trusted).executable()
    except (KeyError, IndexError, TypeError, ValueError, struct.error) as error:
        raise FormatError(f"{name}: not an executable as Pteron writes it ({error!r})") from error


def _split(data: memoryview, name: str) -> tuple[Json, memoryview]:
    if len(data) < PREFIX.size:
        raise FormatError(f"{name}: {len(data)} bytes are no executable")
    magic, version, length = PREFIX.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise FormatError(f"{name}: not an executable of version {VERSION}")
    end = PREFIX.size + length
    if end > len(data):
        raise FormatError(f"{name}: the header of {length:,} bytes is cut off")
    try:
        header = json.loads(bytes(data[PREFIX.size : end]))
    except ValueError as error:
        raise FormatError(f"{name}: the header is damaged ({error})") from error
    return header, data[aligned(end) :]


class _Reader:
    """A header back into what it was made from, every number checked against the table it refers to."""

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
            self._sizes.append(entry.get("bytes"))

        self._sources = tuple(Source(**source) for source in header["sources"])
        self._outputs = tuple(map(self._port, header["outputs"]))

    def executable(self) -> Executable:
        header = self._header
        inputs = tuple(map(self._port, header["inputs"]))
        if not all(0 <= source.input < len(inputs) for source in self._sources):
            raise ValueError("a live integer comes from an input that is not there")
        return Executable(
            name=str(header["name"]),
            target=Target(**header["target"]),
            inputs=inputs,
            outputs=self._outputs,
            sources=self._sources,
            slots=tuple(int(entry["bytes"]) for entry in header["buffers"] if entry["kind"] == "slot"),
            states={id: StateSpec(size, self._weight(first)) for id, (size, first) in self._states.items()},
            once=self._plan(header["once"]),
            plans={
                tuple(None if shape is None else tuple(shape) for shape in entry["shapes"]): [
                    self._plan(plan) for plan in entry["plans"]
                ]
                for entry in header["plans"]
            },
        )

    def _buffer(self, entry: Json, counts: dict[str, int]) -> PlanBuffer:
        kind = entry["kind"]
        if kind == "state":
            self._states[entry["id"]] = (int(entry["bytes"]), entry["initial"])
            return State(int(entry["id"]))
        if kind == "weight":
            return self._packed(entry)
        counts[kind] += 1
        return Slot(counts[kind] - 1) if kind == "slot" else ScratchRef(counts[kind] - 1)

    def _packed(self, entry: Json) -> Weight:
        start, length, size = int(entry["offset"]), int(entry["length"]), int(entry["bytes"])
        if not 0 <= start <= start + length <= len(self._body) or not 0 <= length <= size:
            raise ValueError(f"a weight of {length} bytes at {start} lies outside the file")
        data = self._body[start : start + length]
        constant = Constant(str(entry["content"]), DType.U8, (length,), data)
        storage = Storage(entry["storage"])
        return Weight(
            constant, (length,), "packed", (str(entry["layout"]),), size // storage.itemsize, storage
        )

    def _weight(self, number: int | None) -> Weight | None:
        buffer = None if number is None else self._buffers[number]
        if buffer is not None and not isinstance(buffer, Weight):
            raise ValueError("a state starts from what is no weight")
        return buffer

    def _port(self, entry: Json) -> Port:
        if "dtype" not in entry:
            return SymbolPort(int(entry["id"]))
        buffer, shape = self._buffers[entry["buffer"]], tuple(map(int, entry["shape_max"]))
        if isinstance(buffer, ScratchRef):
            raise ValueError("a value crosses the border in scratch memory")
        storage = Storage(entry["storage"])
        if math.prod(shape) * storage.itemsize > (self._sizes[entry["buffer"]] or 0):
            raise ValueError(f"a value of {shape} does not fit its buffer")
        return TensorPort(int(entry["id"]), DType(entry["dtype"]), shape, storage, buffer)

    def _plan(self, entry: Json) -> Plan:
        symbols = {source.symbol for source in self._sources}
        tape = tuple(_read_term(term, place, symbols) for place, term in enumerate(entry["tape"]))
        blocks = tuple(_read_block(block, len(tape)) for block in entry["blocks"])
        plan = Plan(
            launches=tuple(self._launch(launch, blocks) for launch in entry["launches"]),
            blocks=blocks,
            scratch_bytes=tuple(map(int, entry["scratch_bytes"])),
            shapes={id: tuple(shape) for id, shape in entry["shapes"]},
            integers={id: _read_affine(*value, known=len(tape)) for id, *value in entry["integers"]},
            tape=tape,
            guards=tuple(
                Guard(
                    _read_affine(constant, terms, known=len(tape)),
                    -math.inf if low is None else low,
                    math.inf if high is None else high,
                )
                for constant, terms, low, high in entry["guards"]
            ),
            indices=tuple(IndexRange(**index) for index in entry["indices"]),
        )
        self._check(plan)
        return plan

    def _check(self, plan: Plan) -> None:
        """Scratch memory that launches use, and outputs, must be what the plan says of them."""
        for launch in plan.launches:
            for buffer in launch.buffers:
                if isinstance(buffer, ScratchRef) and buffer.index >= len(plan.scratch_bytes):
                    raise ValueError(f"{launch} uses scratch memory that its plan does not have")
        for port in self._outputs:
            if isinstance(port, TensorPort):
                shape = plan.shapes[port.id]
                if len(shape) != len(port.shape_max) or not all(
                    0 <= size <= most for size, most in zip(shape, port.shape_max, strict=True)
                ):
                    raise ValueError(f"the output {port} has the shape {shape}")

    def _launch(self, entry: Json, blocks: Sequence[ParameterBlock]) -> Launch:
        module, block = self._modules[entry["module"]], entry["block"]
        if len(entry["buffers"]) != len(module.bindings):
            raise ValueError(f"{module.kernel.name} binds {len(module.bindings)} buffers")
        if block is not None and len(blocks[block].data) < module.params_size:
            raise ValueError(f"{module.kernel.name} takes {module.params_size} bytes of parameters")
        x, y, z = map(int, entry["groups"])
        buffers = tuple(self._buffers[number] for number in entry["buffers"])
        return Launch(int(entry["node"]), str(entry["operator"]), module, buffers, block, (x, y, z))


def _read_module(entry: Json, trusted: bool) -> Module:
    bindings = tuple(Binding(**binding) for binding in entry["bindings"])
    x, y, z = map(int, entry["workgroup"])
    return Module(
        kernel=Kernel("", str(entry["name"])),
        source=str(entry["source"]),
        bindings=bindings,
        params_index=entry["params_index"],
        fields=(),
        params_size=int(entry["params_size"]),
        workgroup=(x, y, z),
        aliases=frozenset(),
        constants={},
        statements=Statements(None, {}, None),
        bounds_checks=not trusted or bool(entry["bounds_checks"]),
    )


def _read_block(entry: Json, known: int) -> ParameterBlock:
    data = bytes.fromhex(entry["data"])
    live = tuple((int(offset), _read_affine(*value, known=known)) for offset, *value in entry["live"])
    if not all(0 <= offset <= len(data) - 4 for offset, _ in live):
        raise ValueError("a live parameter lies outside its block")
    return ParameterBlock(data, live)


def _read_affine(constant: int, terms: Sequence[Sequence[int]], *, known: int) -> Affine:
    """An expression over the first `known` terms of a tape."""
    read = tuple((int(term), int(factor)) for term, factor in terms)
    if not all(0 <= term < known for term, _ in read):
        raise ValueError("an expression of a term that is not on the tape before it")
    return Affine(int(constant), read)


def _read_term(entry: Json, place: int, symbols: Collection[int]) -> Term:
    kind, *rest = entry
    if kind == "symbol":
        if rest[0] not in symbols:
            raise ValueError(f"a live integer %{rest[0]} that comes from nowhere")
        return Symbol(int(rest[0]))
    left, right = _read_affine(*rest[:2], known=place), _read_affine(*rest[2:], known=place)
    if kind not in ("product", "quotient"):
        raise ValueError(f"a term of kind {kind!r}")
    return Product(left, right) if kind == "product" else Quotient(left, right)
