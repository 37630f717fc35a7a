"""A folder that shows a departure (saved.py) -> its nodes run again, on any adapter."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.gpu import Device
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, ValueList
from pteron.tools.compare.errors import Errors, held_type, measure
from pteron.tools.compare.extract import Extract
from pteron.tools.compare.saved import FORM
from pteron.tools.compare.tolerances import Tolerances, work_of_all


@dataclass(frozen=True, slots=True)
class Replayed:
    """An output of nodes that were run again: whether it has the bits that were saved, and how far it is
    from the reference that was."""

    output: str
    is_same: bool
    errors: Errors

    def __str__(self) -> str:
        again = "as saved" if self.is_same else "not as saved"
        verdict = self.errors.problem or f"within tolerance, {self.errors.max_abs:.3g} off at most"
        return f"{self.output}: {again}; {verdict}"


def replay(folder: str | os.PathLike[str], device: Device | str | None = None) -> tuple[Replayed, ...]:
    """Run the nodes in a folder again, on the inputs that are there, with the rewrites that they ran with."""
    root = Path(folder)
    try:
        described = json.loads((root / "node.json").read_text("utf-8"))
        part = _read(described, root)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{root}: not a departure that `pteron compare --save` wrote: {error}") from error
    opened = Device.open(device)
    target = replace(opened.target, **described["target"])
    found = part.run(opened, target, described["rewrites"])
    work = work_of_all(node.name for node in part.graph.nodes)
    replayed = []
    for tensor in part.outputs:
        saved = np.load(root / f"gpu_{tensor.id}.npy", allow_pickle=False)
        reference = root / f"reference_{tensor.id}.npy"  # none where memory was written over
        wanted = np.load(reference, allow_pickle=False) if reference.exists() else saved
        is_same = found[tensor.id].tobytes() == saved.tobytes()
        held = held_type(tensor.dtype, found[tensor.id], wanted)
        errors = measure(found[tensor.id], wanted, held, Tolerances().bound(work, held))
        replayed.append(Replayed(str(tensor), is_same, errors))
    return tuple(replayed)


def _read(described: Mapping[str, Any], root: Path) -> Extract:
    if described["form"] != FORM:
        raise ValueError(f"its form is {described['form']}, expected {FORM}")
    values: dict[int, Tensor | SymInt] = {}
    given: dict[int, Any] = {}
    for key, about in described["values"].items():
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
        for node in described["nodes"]
    )
    inputs = tuple(values[id] for id in described["inputs"])
    outputs = tuple(values[id] for id in described["outputs"])
    return Extract(Graph(str(root), nodes, inputs, outputs), tuple(given[value.id] for value in inputs))
