"""The first departure -> a folder that reproduces it without the program; and its nodes run again.

node.json      the nodes, their arguments, shapes and types; adapter, versions, errors
value_N.npy    inputs of the nodes: tensors, states, constants
gpu_N.npy      outputs of the GPU;  reference_N.npy  the expected ones
replay.py      runs the nodes again
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import FormatError, InputError
from pteron.gpu import Device
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.graph.values import tensors
from pteron.ops.operand import HostArray
from pteron.tools.accuracy import Errors, Tolerances, held_type, measure, rounding_of_all
from pteron.tools.compare.calls import Departure
from pteron.tools.compare.subgraph import Subgraph, extract_subgraph

FORM = 1
_SCRIPT = '''"""Runs the nodes of node.json again, on the adapter that PTERON_ADAPTER names."""

from pathlib import Path

from pteron.tools.compare import replay

for output in replay(Path(__file__).parent):
    print(output)
'''


@dataclass(frozen=True, slots=True)
class ReplayedOutput:
    """An output of nodes that ran again: whether it equals the saved one, and its errors."""

    output: str
    is_same: bool
    errors: Errors

    def __str__(self) -> str:
        again = "as saved" if self.is_same else "not as saved"
        verdict = self.errors.problem or f"within tolerance, largest difference {self.errors.max_abs:.3g}"
        return f"{self.output}: {again}; {verdict}"


def replay(folder: str | os.PathLike[str], device: Device | str | None = None) -> tuple[ReplayedOutput, ...]:
    """Run the nodes of a folder again, on the saved inputs and with the same rewrites."""
    root = Path(folder)
    try:
        content = json.loads((root / "node.json").read_text("utf-8"))
        part = _read(content, root)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{root}: not a folder of `pteron compare --save`: {error}") from error
    opened = Device.open(device)
    target = replace(opened.target, **content["target"])
    found = part.run(opened, target, content["rewrites"])
    rounding = rounding_of_all(node.name for node in part.graph.nodes)
    replayed = []
    for tensor in part.outputs:
        saved = np.load(root / f"gpu_{tensor.id}.npy", allow_pickle=False)
        reference = root / f"reference_{tensor.id}.npy"  # missing if the memory was overwritten
        wanted = np.load(reference, allow_pickle=False) if reference.exists() else saved
        is_same = found[tensor.id].tobytes() == saved.tobytes()
        held = held_type(tensor.dtype, found[tensor.id], wanted)
        errors = measure(found[tensor.id], wanted, held, Tolerances().bound(rounding, held))
        replayed.append(ReplayedOutput(str(tensor), is_same, errors))
    return tuple(replayed)


def _read(content: Mapping[str, Any], root: Path) -> Subgraph:
    if content["form"] != FORM:
        raise ValueError(f"its version is {content['form']}, expected {FORM}")
    values: dict[int, Tensor | SymInt] = {}
    given: dict[int, Any] = {}
    for key, about in content["values"].items():
        id = int(key)
        if "integer" in about:
            values[id], given[id] = SymInt(id), int(about["integer"])
            continue
        dtype, shape = DType(about["dtype"]), tuple(about["shape_max"])
        constant = None
        if about["role"] != "made":
            given[id] = np.load(root / Path(about["file"]).name, allow_pickle=False)
        if about["role"] == "constant":
            data = memoryview(np.ascontiguousarray(given[id]).tobytes())
            constant = Constant(f"{root.name} {id}", dtype, shape, data)
        values[id] = Tensor(id, dtype, shape, constant)

    def value(argument: Any) -> Any:
        match argument:
            case {"tensor": id} | {"live": id}:
                return values[id]
            case {"list": id, "items": items}:
                return ValueList(id, tuple(map(value, items)))
            case list():
                return tuple(argument)
        return argument

    nodes = tuple(
        Node(node["index"], node["operator"], tuple(map(value, node["arguments"])))
        for node in content["nodes"]
    )
    inputs = tuple(values[id] for id in content["inputs"])
    outputs = tuple(values[id] for id in content["outputs"])
    return Subgraph(Graph(str(root), nodes, inputs, outputs), tuple(given[value.id] for value in inputs))


def save(departure: Departure, settings: Mapping[str, Any], folder: Path) -> str:
    """Write the folder; returns its path."""
    part = extract_subgraph(departure.record)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        described = {**_described(part, departure, folder), **settings}
        for tensor in part.outputs:
            np.save(folder / f"gpu_{tensor.id}.npy", departure.record.after[tensor.id])
            if tensor.id in departure.expected:
                np.save(folder / f"reference_{tensor.id}.npy", np.asarray(departure.expected[tensor.id]))
        (folder / "node.json").write_text(json.dumps(described, indent=2) + "\n", "utf-8")
        (folder / "replay.py").write_text(_SCRIPT, "utf-8")
    except OSError as error:
        raise InputError(f"the departure cannot be saved: {error}") from None
    return str(folder)


def _described(part: Subgraph, departure: Departure, folder: Path) -> dict[str, Any]:
    """The content of node.json without the settings; also writes the value files."""
    values: dict[str, Any] = {}
    for value, given in zip(part.graph.inputs, part.inputs, strict=True):
        if isinstance(value, SymInt):
            values[str(value.id)] = {"integer": int(given)}
        else:
            values[str(value.id)] = _tensor(value, np.asarray(given), "input", folder)
    for tensor in (t for node in part.graph.nodes for arg in node.args for t in tensors(arg)):
        if str(tensor.id) not in values:
            constant = tensor.constant
            array = constant.numpy() if constant is not None else None
            values[str(tensor.id)] = _tensor(tensor, array, "constant" if constant else "made", folder)
    row = departure.row
    return {
        "form": FORM,
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
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in ("pteron", "wgpu", "numpy", "torch"):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _tensor(tensor: Tensor, array: HostArray | None, role: str, folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = {"role": role, "dtype": str(tensor.dtype)}
    described["shape_max"] = list(tensor.shape_max)
    if array is not None:
        described |= {"shape": list(array.shape), "file": f"value_{tensor.id}.npy"}
        np.save(folder / f"value_{tensor.id}.npy", array)
    return described


def _argument(value: Value) -> Any:
    """A value as JSON: tensors and live integers by id, lists with their items, others unchanged."""
    if isinstance(value, Tensor):
        return {"tensor": value.id}
    if isinstance(value, SymInt):
        return {"live": value.id}
    if isinstance(value, ValueList):
        return {"list": value.id, "items": [_argument(item) for item in value.items]}
    return list(value) if isinstance(value, tuple) else value
