"""LoRA adapters beside a model. In: adapters and a program's graph. Out: the graph with a `pteron.lora` node
behind each linear layer that an adapter changes.

    adapters = Adapters.read({"sql": "adapters/sql"}, folder)
    graph = adapters.add_to(graph)

Adapters are numbered from 1; 0 is the model itself. A state of each sequence holds the number of its adapter
(families/linear/lora.py), so the rows of a batch may have different ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.families.linear.lora import CHOICE_WORDS, ROWS
from pteron.format.stored_tensor import Array, StoredTensor
from pteron.graph import Constant, Graph, Node, Tensor, Value
from pteron.graph.values import ids_of, tensors
from pteron.llm.adapter_files import Adapter, LoraPair, read_adapter
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.names import Names, find_rule
from pteron.llm.architectures.parts import EMBEDDING, OUTPUT
from pteron.llm.export.checkpoint import as_config_error
from pteron.names.model_files import MANIFEST, ModelFolder

_WEIGHT = re.compile(r"(.+)\.weight(?:\.\w+)?")  # the key of a matrix, which names its place
_LINEAR = re.compile(r"(?!.*experts).*(linear|_mm).*")  # operators

# The matrices of one layer: a [rank, columns] and b [rank, rows], with the adapter's factor.
Matrices: TypeAlias = tuple[Array, Array]


@dataclass(frozen=True, slots=True)
class Adapters:
    """Adapters of one model, in the order of their numbers."""

    adapters: Sequence[Adapter]
    config: Config  # of the model

    @classmethod
    def read(cls, paths: Mapping[str, Any], folder: ModelFolder) -> Adapters:
        """Adapters by name, for the program in a folder."""
        config = folder.manifest.get("config")
        if not isinstance(config, dict):
            raise UnsupportedError(
                f"{folder.path}: {MANIFEST} does not describe the architecture, so adapters cannot be added: "
                "build the program with `pteron export llm` from its checkpoint (ExecuTorch's exporter keeps "
                "no names of weights)"
            )
        for name in paths:
            if not isinstance(name, str) or not name:
                raise InputError(f"the name of an adapter must be a string, not {name!r}")
        return cls([read_adapter(name, path) for name, path in paths.items()], Config(config))

    def add_to(self, graph: Graph) -> Graph:
        """The graph with all adapters; tokens are its first input."""
        layers = linear_layers(graph)
        if not layers:
            raise UnsupportedError(
                f"{graph.name}: its weights have no names, so adapters cannot be added: build the program "
                "with `pteron export llm` from its checkpoint"
            )
        placed = [self._placed(adapter, layers) for adapter in self.adapters]
        changed = {place for each in placed for place in each}
        stacks = {place: _stack([each.get(place) for each in placed]) for place in changed}
        return _with_nodes(graph, {node: stacks[place] for place in stacks for node in layers[place]})

    def _placed(self, adapter: Adapter, layers: Mapping[str, Sequence[Node]]) -> dict[str, Matrices]:
        """An adapter's matrices by place."""
        names = adapter.names(self.config)
        found: dict[str, Matrices] = {}
        for module, pair in adapter.modules.items():
            where = f"adapter {adapter.name}, {module}"
            for place, rows in _rows_of_places(names, self.config, module, pair, where).items():
                if place not in layers:
                    raise UnsupportedError(
                        f"{where}: this is no linear layer; adapters of others are not supported"
                    )
                found[place] = _matrices(pair, rows, layers[place][0], where)
        return found


def linear_layers(graph: Graph) -> dict[str, list[Node]]:
    """The nodes of linear layers by place, from the keys of their matrices. A table that is also the output
    matrix has the key of the table."""
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if _LINEAR.fullmatch(node.name):
            for tensor in (tensor for argument in node.args for tensor in tensors(argument)):
                matched = tensor.constant and _WEIGHT.fullmatch(tensor.constant.key)
                if matched:
                    place = OUTPUT if matched[1] == EMBEDDING else matched[1]
                    found.setdefault(place, []).append(node)
    return found


def _rows_of_places(
    names: Names, config: Config, module: str, pair: LoraPair, where: str
) -> dict[str, npt.NDArray[np.int64]]:
    """Which rows of a module's matrix each place has: a stored matrix may hold several, or have its rows in
    another order."""
    rule, numbers = find_rule(names, module) or (None, ())
    if rule is None:
        raise UnsupportedError(f"{where}: the model's family has no such module")
    rows = pair.b.rows
    # Rules move rows of matrices. Two columns show that one leaves rows whole and changes no number.
    probe = StoredTensor.of(np.stack([np.arange(rows), np.arange(rows) + rows], 1))
    with as_config_error(where):
        try:
            made = {rule: probe} if isinstance(rule, str) else getattr(rule, "of_rows", rule)(config, probe)
            parts = {place.format(*numbers): part.read() for place, part in made.items()}
        except (UnsupportedError, ValueError) as error:
            raise FormatError(
                f"{where}: lora_b has {rows} rows, which do not fit the model: {error}"
            ) from None
    for part in parts.values():
        if part.ndim != 2 or part.shape[1] != 2 or (part[:, 1] - part[:, 0] != rows).any():
            raise UnsupportedError(
                f"{where}: this matrix is stored in another form; adapters of it are not supported"
            )
    return {place: part[:, 0].astype(np.int64) for place, part in parts.items()}


def _matrices(pair: LoraPair, rows: npt.NDArray[np.int64], node: Node, where: str) -> Matrices:
    (x, *_), (y,) = tensors(node.args[0]), tensors(node.args[-1])
    expected = (y.shape_max[-1], x.shape_max[-1])
    if (len(rows), pair.a.shape[1]) != expected:
        raise FormatError(
            f"{where}: lora_a {list(pair.a.shape)} and lora_b {list(pair.b.shape)} change a matrix of "
            f"{len(rows)} x {pair.a.shape[1]}, but the model's is {expected[0]} x {expected[1]}: the "
            "adapter is of another base model"
        )
    b = pair.b.read()[rows].astype(np.float64) * pair.scale
    return pair.a.read(), np.ascontiguousarray(b.T, np.float32)


def _stack(matrices: Sequence[Matrices | None]) -> tuple[npt.NDArray[Any], ...]:
    """a, b and ranks of all adapters, padded to the highest rank."""
    ranks = [0 if each is None else len(each[0]) for each in matrices]
    given = next(each for each in matrices if each is not None)
    a, b = (np.zeros((len(ranks), max(ranks), each.shape[1]), np.float32) for each in given)
    for index, each in enumerate(matrices):
        if each is not None:
            a[index, : ranks[index]], b[index, : ranks[index]] = each
    return a, b, np.array(ranks, np.int32)


def _with_nodes(graph: Graph, stacks: Mapping[Node, tuple[npt.NDArray[Any], ...]]) -> Graph:
    ids = count(1 + max(ids_of(graph)))
    memory = 1 + max((tensor.memory or 0 for node in graph.nodes for tensor in _tensors(node)), default=0)
    tokens = graph.inputs[0]
    assert isinstance(tokens, Tensor)
    shape = (1, CHOICE_WORDS)
    chosen = Tensor(next(ids), DType.I32, shape, Constant("adapter", DType.I32, shape, memoryview(b"")))
    which = Tensor(next(ids), DType.I32, (tokens.shape_max[-1],))
    nodes: list[tuple[str, tuple[Value, ...]]] = [(ROWS, (chosen, tokens, None, which))]
    for node in graph.nodes:
        if node not in stacks:
            nodes.append((node.name, node.args))
            continue
        constants = [_constant(next(ids), array) for array in stacks[node]]
        (x, *_), (out,) = tensors(node.args[0]), tensors(node.args[-1])
        plain = Tensor(next(ids), out.dtype, out.shape_max, memory=memory)  # all layers share its memory
        nodes.append((node.name, (*node.args[:-1], plain)))
        nodes.append(("pteron.lora", (x, plain, *constants, which, out)))
    numbered = tuple(Node(index, name, args) for index, (name, args) in enumerate(nodes))
    return Graph(graph.name, numbered, graph.inputs, graph.outputs, is_internal=True)


def _tensors(node: Node) -> Iterator[Tensor]:
    return (tensor for argument in node.args for tensor in tensors(argument))


def _constant(id: int, array: npt.NDArray[Any]) -> Tensor:
    dtype = DType.I32 if array.dtype == np.int32 else DType.F32
    data = array.reshape(-1).view(np.uint8).data
    return Tensor(id, dtype, array.shape, Constant(f"adapters {id}", dtype, array.shape, data))
