"""The first departure -> a folder that shows it again on another machine, without the program.

node.json      the nodes, their arguments, shapes and types; adapter, versions, errors
value_N.npy    what the nodes were given: inputs, states before, constants
gpu_N.npy      what the GPU gave;  reference_N.npy  what it should have given
replay.py      runs the nodes again on those inputs
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pteron.errors import InputError
from pteron.gpu import Device
from pteron.graph import SymInt, Tensor, Value, ValueList
from pteron.ops import Target
from pteron.ops.operand import HostArray
from pteron.tools.compare.extract import Extract, extract
from pteron.tools.compare.judging import Departure

FORM = 1
_SCRIPT = '''"""Runs the nodes of node.json again, on the adapter that PTERON_ADAPTER names."""

from pathlib import Path

from pteron.tools.compare import replay

for output in replay(Path(__file__).parent):
    print(output)
'''


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where a departure was seen."""

    program: str
    method: str
    device: Device
    target: Target
    rewrites: tuple[str, ...]
    reference: str


def save(departure: Departure, where: Circumstances, folder: Path) -> str:
    """Write the folder; its path."""
    part = extract(departure.seen)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        described = _described(part, departure, where, folder)
        for tensor in part.outputs:
            np.save(folder / f"gpu_{tensor.id}.npy", departure.seen.after[tensor.id])
            if tensor.id in departure.expected:
                np.save(folder / f"reference_{tensor.id}.npy", np.asarray(departure.expected[tensor.id]))
        (folder / "node.json").write_text(json.dumps(described, indent=2) + "\n", "utf-8")
        (folder / "replay.py").write_text(_SCRIPT, "utf-8")
    except OSError as error:
        raise InputError(f"the departure cannot be saved: {error}") from None
    return str(folder)


def _described(part: Extract, departure: Departure, where: Circumstances, folder: Path) -> dict[str, Any]:
    """What node.json holds. Values are written to files on the way."""
    values: dict[str, Any] = {}
    for value, given in zip(part.graph.inputs, part.inputs, strict=True):
        if isinstance(value, SymInt):
            values[str(value.id)] = {"integer": int(given)}
        else:
            values[str(value.id)] = _tensor(value, np.asarray(given), "input", folder)
    for node in part.graph.nodes:
        for tensor in _tensors(node.args):
            if str(tensor.id) in values:
                continue
            constant = tensor.constant
            array = constant.numpy() if constant is not None else None
            values[str(tensor.id)] = _tensor(tensor, array, "constant" if constant else "made", folder)
    row = departure.row
    return {
        "form": FORM,
        "program": Path(where.program).name,
        "method": where.method,
        "call": row.call,
        "delegate": row.delegate,
        "ran": row.ran,
        "nodes": [
            {"index": node.index, "operator": node.name, "arguments": [_argument(arg) for arg in node.args]}
            for node in part.graph.nodes
        ],
        "values": values,
        "inputs": [value.id for value in part.graph.inputs],
        "outputs": [tensor.id for tensor in part.outputs],
        "departs": {"output": row.output, "reason": row.reason, "errors": row.errors and asdict(row.errors)},
        "reference": where.reference,
        "rewrites": list(where.rewrites),
        "target": {"is_cpu": where.target.is_cpu, "digits": where.target.digits},
        "adapter": {"name": str(where.device.adapter), "driver": where.device.adapter.driver},
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in ("pteron", "wgpu", "numpy", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _tensor(tensor: Tensor, array: HostArray | None, role: str, folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = {
        "role": role,
        "dtype": str(tensor.dtype),
        "shape_max": list(tensor.shape_max),
    }
    if array is not None:
        described |= {"shape": list(array.shape), "file": f"value_{tensor.id}.npy"}
        np.save(folder / f"value_{tensor.id}.npy", array)
    return described


def _tensors(arguments: tuple[Value, ...]) -> list[Tensor]:
    items = [item for arg in arguments for item in (arg.items if isinstance(arg, ValueList) else (arg,))]
    return [item for item in items if isinstance(item, Tensor)]


def _argument(value: Value) -> Any:
    """A value as JSON: tensors and live integers by id, lists with what they hold, anything else as it is."""
    if isinstance(value, Tensor):
        return {"tensor": value.id}
    if isinstance(value, SymInt):
        return {"live": value.id}
    if isinstance(value, ValueList):
        return {"list": value.id, "items": [_argument(item) for item in value.items]}
    return list(value) if isinstance(value, tuple) else value
