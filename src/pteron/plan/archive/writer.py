"""Executable -> archive."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from dataclasses import asdict
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from pteron.ops.terms import Affine, Product, Symbol, Term
from pteron.plan.executable import Executable, Port, SymbolPort
from pteron.plan.plan import Plan, ScratchRef
from pteron.wgsl import Module

Json: TypeAlias = Any


def write(executable: Executable, path: str | os.PathLike[str]) -> None:
    """Write an executable with its weights, packed as the kernels read them."""
    with open(path, "wb") as file:
        _Writer(executable).write(file)


class _Writer:
    """Numbers the modules and buffers of an executable, and writes them."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._modules = {module.source: number for number, module in enumerate(executable.modules())}
        self._weights = executable.weights()
        self._buffers = executable.number_buffers(self._weights)

    def write(self, file: BinaryIO) -> None:
        packed = [np.ascontiguousarray(weight.pack()) for weight in self._weights]
        offset, table = 0, []
        for weight, array in zip(self._weights, packed, strict=True):
            table.append(
                {
                    "kind": "weight",
                    "bytes": weight.bytes,
                    "storage": str(weight.storage),
                    "layout": weight.layout,
                    "content": hashlib.sha256(array.tobytes()).hexdigest(),
                    "offset": offset,
                    "length": array.nbytes,
                }
            )
            offset += aligned(array.nbytes)
        header = json.dumps(self._header(table), separators=(",", ":"), sort_keys=True).encode()
        file.write(PREFIX.pack(MAGIC, VERSION, len(header)))
        file.write(header.ljust(aligned(PREFIX.size + len(header)) - PREFIX.size))
        for array in packed:
            file.write(array.tobytes().ljust(aligned(array.nbytes), b"\0"))

    def _header(self, weights: list[Json]) -> Json:
        executable = self._executable
        slots = [{"kind": "slot", "bytes": size} for size in executable.slots]
        states = [
            {
                "kind": "state",
                "bytes": spec.bytes,
                "id": id,
                "initial": None if spec.initial is None else self._buffers[spec.initial],
            }
            for id, spec in executable.states.items()
        ]
        scratch = [{"kind": "scratch"} for buffer in self._buffers if isinstance(buffer, ScratchRef)]
        return {
            "name": executable.name,
            "target": asdict(executable.target),
            "inputs": list(map(self._port, executable.inputs)),
            "outputs": list(map(self._port, executable.outputs)),
            "sources": [asdict(source) for source in executable.sources],
            "modules": list(map(_module, executable.modules())),
            "buffers": [*slots, *states, *weights, *scratch],
            "once": self._plan(executable.once),
            "plans": [
                {"shapes": shapes, "plans": list(map(self._plan, plans))}
                for shapes, plans in executable.plans.items()
            ],
        }

    def _port(self, port: Port) -> Json:
        if isinstance(port, SymbolPort):
            return {"id": port.id}
        return {
            "id": port.id,
            "dtype": str(port.dtype),
            "shape_max": port.shape_max,
            "storage": str(port.storage),
            "buffer": self._buffers[port.buffer],
        }

    def _plan(self, plan: Plan) -> Json:
        return {
            "launches": [
                {
                    "node": launch.node,
                    "operator": launch.operator,
                    "module": self._modules[launch.module.source],
                    "buffers": [self._buffers[buffer] for buffer in launch.buffers],
                    "block": launch.block,
                    "groups": launch.groups,
                    "starts": launch.starts,
                    "nodes": launch.nodes,
                }
                for launch in plan.launches
            ],
            "blocks": [
                {
                    "data": block.data.hex(),
                    "live": [[offset, *_affine(value)] for offset, value in block.live],
                }
                for block in plan.blocks
            ],
            "scratch_bytes": plan.scratch_bytes,
            "shapes": list(plan.shapes.items()),
            "integers": [[id, *_affine(value)] for id, value in plan.integers.items()],
            "tape": list(map(_term, plan.tape)),
            "guards": [[*_affine(g.expression), _bound(g.low), _bound(g.high)] for g in plan.guards],
            "indices": [asdict(index) for index in plan.indices],
        }


def _module(module: Module) -> Json:
    return {
        "name": module.kernel.name,
        "source": module.source,
        "bindings": [asdict(binding) for binding in module.bindings],
        "params_index": module.params_index,
        "params_size": module.params_size,
        "workgroup": module.workgroup,
        "bounds_checks": module.bounds_checks,
    }


def _affine(value: Affine) -> tuple[int, Json]:
    return value.constant, value.terms


def _term(term: Term) -> Json:
    if isinstance(term, Symbol):
        return ["symbol", term.id]
    kind = "product" if isinstance(term, Product) else "quotient"
    return [kind, *_affine(term.left), *_affine(term.right)]


def _bound(number: float) -> int | None:
    return None if math.isinf(number) else int(number)


MAGIC, VERSION = b"PTEX", 1
PREFIX = struct.Struct("<4sIQ")  # magic, version, length of the header
_ALIGNMENT = 64


def aligned(size: int) -> int:
    """The next offset at which a weight may start."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
