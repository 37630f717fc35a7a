"""The answers of the built-in set: computed in float64 with PyTorch, and read from a file without it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pteron.graph import Graph, Node, SymInt, Tensor
from pteron.graph.values import tensors
from pteron.ops import OPERATORS
from pteron.tools.compare.steps import Step, StepRecord
from pteron.tools.doctor.drawing import Array, KnownCase

Answers: TypeAlias = Mapping[int, Array]  # of one call, by the ids of tensors
FILE = Path(__file__).with_name("answers.npz")
_STORED = {"f": np.float32, "i": np.int32, "b": np.bool_}
_DAY = (2020, 1, 1, 0, 0, 0)  # of a zip's entries: the same bytes for the same answers


def compute(case: KnownCase) -> list[Answers]:
    """The answers of each call. Needs PyTorch."""
    found: list[Answers] = []
    states: dict[int, Array] = {}
    kept = {id for node in case.graph.nodes for id in _constants(node.args[:-1])}
    for call in case.calls:
        pairs = list(zip(case.graph.inputs, call, strict=True))
        inputs = {value.id: given for value, given in pairs if isinstance(given, np.ndarray)}
        integers = {value.id: given for value, given in pairs if isinstance(value, SymInt)}
        made = known_values(case.graph, {**inputs, **states}, integers)  # type: ignore[arg-type]
        states |= {id: value for id, value in made.items() if id in kept}
        found.append(made)
    return found


def known_values(graph: Graph, inputs: Mapping[int, Array], integers: Mapping[int, int]) -> dict[int, Array]:
    """What the nodes of a graph write, by the ids of tensors: in float64, int64 or bool. `inputs` has the
    graph's inputs, and states that earlier calls left. The values do not depend on a plan."""
    from pteron.tools.compare.float64 import float64  # imports PyTorch

    nodes = Step((), left_out=graph.nodes)
    shapes = {id: array.shape for id, array in inputs.items()}
    made = float64(StepRecord(graph, nodes, inputs, {}, (), {}, integers, shapes))
    return {tensor.id: np.asarray(made[tensor.id]) for node in graph.nodes for tensor in _written(node)}


def _written(node: Node) -> Iterator[Tensor]:
    """The tensors that a node writes: its outputs, and states."""
    *inputs, output = node.args
    yield from tensors(output)
    for argument, value in zip(OPERATORS[node.name].signature.arguments, inputs, strict=True):
        if argument.mutated and isinstance(value, Tensor):
            yield value


def write(cases: Sequence[KnownCase], path: Path = FILE) -> None:
    """Write the answers of all cases."""
    with zipfile.ZipFile(path, "w") as archive:
        for index, case in enumerate(cases):
            for call, answers in enumerate(compute(case)):
                for id, value in answers.items():
                    buffer = io.BytesIO()
                    np.save(buffer, value.astype(_STORED[value.dtype.kind]))
                    entry = zipfile.ZipInfo(f"{index}.{call}.{id}.npy", _DAY)
                    archive.writestr(entry, buffer.getvalue(), zipfile.ZIP_DEFLATED)


def read(cases: Sequence[KnownCase]) -> list[list[Answers]]:
    """The answers of all cases, call by call."""
    found: list[list[dict[int, Array]]] = [[{} for _ in case.calls] for case in cases]
    with np.load(FILE, allow_pickle=False) as archive:
        for name in archive.files:
            index, call, id = map(int, name.split("."))
            value = archive[name]
            wide = {"f": np.float64, "i": np.int64, "b": np.bool_}[value.dtype.kind]
            found[index][call][id] = value.astype(wide)
    return [list(calls) for calls in found]


def _constants(arguments: Sequence[object]) -> list[int]:
    return [int(value.id) for value in arguments if getattr(value, "constant", None) is not None]  # type: ignore[attr-defined]
