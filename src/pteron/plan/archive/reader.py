"""Archive -> executable. Pteron writes archives, so the structure of the header is not checked beyond what
Python and wgpu reject."""

from __future__ import annotations

import json
import math
from typing import Any, TypeAlias

from pteron.dtypes import DType, Storage
from pteron.errors import FormatError
from pteron.format.source import contents
from pteron.graph import Constant
from pteron.ops import Target, Weight
from pteron.ops.operand import Slot, State
from pteron.ops.terms import Affine, Guard, Product, Quotient, Symbol, Term
from pteron.passes import Source, StateSpec
from pteron.plan.archive.writer import MAGIC, PREFIX, VERSION, aligned
from pteron.plan.executable import Executable, Port, SymbolPort, TensorPort
from pteron.plan.plan import IndexRange, Launch, ParameterBlock, Plan, PlanBuffer, ScratchRef
from pteron.wgsl import Binding, Kernel, Module

Json: TypeAlias = Any


def read(data: memoryview, name: str, *, trusted: bool = False) -> Executable:
    """The executable in a file's bytes; weights stay views into them. FormatError where it is none."""
    header, body = _split(data, name)
    try:
        return _Reader(header, body, trusted).executable()
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
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
    """Turns a header into an executable."""

    def __init__(self, header: Json, body: memoryview, trusted: bool) -> None:
        self._header = header
        self._body = body
        self._modules = [_read_module(module, trusted) for module in header["modules"]]
        counts = {"slot": 0, "scratch": 0}
        self._buffers = [self._buffer(entry, counts) for entry in header["buffers"]]
        self._inputs = tuple(map(self._port, header["inputs"]))
        # Programs with the same weights share their buffers, so a call must not write to one.
        if any(isinstance(port, TensorPort) and isinstance(port.buffer, Weight) for port in self._inputs):
            raise ValueError("an input is bound to the buffer of a weight")

    def executable(self) -> Executable:
        header = self._header
        return Executable(
            name=header["name"],
            target=Target(**header["target"]),
            inputs=self._inputs,
            outputs=tuple(map(self._port, header["outputs"])),
            sources=tuple(Source(**source) for source in header["sources"]),
            slots=tuple(entry["bytes"] for entry in header["buffers"] if entry["kind"] == "slot"),
            states={
                entry["id"]: self._state(entry) for entry in header["buffers"] if entry["kind"] == "state"
            },
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
            return State(entry["id"])
        if kind == "weight":
            return self._packed(entry)
        counts[kind] += 1
        return Slot(counts[kind] - 1) if kind == "slot" else ScratchRef(counts[kind] - 1)

    def _packed(self, entry: Json) -> Weight:
        start, length, storage = entry["offset"], entry["length"], Storage(entry["storage"])
        data = self._body[start : start + length]
        if len(data) < length:
            raise ValueError("the file is cut off")
        constant = Constant(entry["content"], DType.U8, (length,), data)
        elements = entry["bytes"] // storage.itemsize
        return Weight(constant, (length,), "packed", (entry["layout"],), elements, storage)

    def _state(self, entry: Json) -> StateSpec:
        first = None if entry["initial"] is None else self._buffers[entry["initial"]]
        assert first is None or isinstance(first, Weight)
        return StateSpec(entry["bytes"], first)

    def _port(self, entry: Json) -> Port:
        if "dtype" not in entry:
            return SymbolPort(entry["id"])
        buffer = self._buffers[entry["buffer"]]
        assert not isinstance(buffer, ScratchRef)
        dtype, storage = DType(entry["dtype"]), Storage(entry["storage"])
        return TensorPort(entry["id"], dtype, tuple(entry["shape_max"]), storage, buffer)

    def _plan(self, entry: Json) -> Plan:
        return Plan(
            launches=tuple(map(self._launch, entry["launches"])),
            blocks=tuple(map(_read_block, entry["blocks"])),
            scratch_bytes=tuple(entry["scratch_bytes"]),
            shapes={id: tuple(shape) for id, shape in entry["shapes"]},
            integers={id: _read_affine(*value) for id, *value in entry["integers"]},
            tape=tuple(map(_read_term, entry["tape"])),
            guards=tuple(
                Guard(
                    _read_affine(constant, factors),
                    -math.inf if low is None else low,
                    math.inf if high is None else high,
                )
                for constant, factors, low, high in entry["guards"]
            ),
            indices=tuple(IndexRange(**index) for index in entry["indices"]),
        )

    def _launch(self, entry: Json) -> Launch:
        module = self._modules[entry["module"]]
        buffers = tuple(self._buffers[number] for number in entry["buffers"])
        for binding, buffer in zip(module.bindings, buffers, strict=True):
            if binding.access == "read_write" and isinstance(buffer, Weight):
                raise ValueError(f"{module.kernel.name} writes to a weight")
        x, y, z = entry["groups"]
        starts = tuple((name, start) for name, start in entry.get("starts", ()))
        nodes = tuple(entry.get("nodes", ()))
        return Launch(
            entry["node"], entry["operator"], module, buffers, entry["block"], (x, y, z), starts, nodes
        )


def _read_module(entry: Json, trusted: bool) -> Module:
    x, y, z = entry["workgroup"]
    return Module(
        kernel=Kernel("", entry["name"]),
        source=entry["source"],
        bindings=tuple(Binding(**binding) for binding in entry["bindings"]),
        params_index=entry["params_index"],
        fields=(),
        params_size=entry["params_size"],
        workgroup=(x, y, z),
        bounds_checks=not trusted or entry["bounds_checks"],
        is_trusted=trusted,
    )


def _read_block(entry: Json) -> ParameterBlock:
    live = ((offset, _read_affine(*value)) for offset, *value in entry["live"])
    return ParameterBlock(bytes.fromhex(entry["data"]), tuple(live))


def _read_term(entry: Json) -> Term:
    kind, *rest = entry
    if kind == "symbol":
        return Symbol(rest[0])
    return (Product if kind == "product" else Quotient)(_read_affine(*rest[:2]), _read_affine(*rest[2:]))


def _read_affine(constant: int, factors: Json) -> Affine:
    return Affine(constant, tuple((term, factor) for term, factor in factors))
