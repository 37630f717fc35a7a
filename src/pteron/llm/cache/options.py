"""Length and element type of KV caches, chosen at load. In: a graph of a program. Out: the same graph with
other caches; weights are shared.

A cache is [1, context, heads, width]. If its attention has a shorter window, it is a ring, which has the rows
of the last positions only: the window, and those of one call. The longest context is stated by programs that
Pteron builds (`get_longest_context_len`); elsewhere it is that of the caches in the file. Tables by position
of these programs, such as those of rotary embeddings, are cut to the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Literal, get_args

from pteron.dtypes import DType
from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.families.attention.caches import PREPACK, find_caches, prepacked
from pteron.families.attention.int8 import head_width, words_of
from pteron.format.records import ProgramFile
from pteron.gpu import SLOT_ALIGNMENT, Device
from pteron.graph import Constant, Graph, Node, Shape, SymInt, Tensor, Value
from pteron.graph.values import numel, tensors
from pteron.llm.arguments import integer
from pteron.llm.network.options import LONGEST

CacheType = Literal["f32", "f16", "int8"]
AHEAD = 64  # rows of a ring beside the window, at least: the number of last tokens that can be dropped


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """The tokens that a KV cache holds and the type of its elements; None: as in the file. Without `rings`,
    layers with a window keep the rows of all tokens. Without a context, that of the file grows to `least`
    tokens if the model allows it. A context beyond the model's longest is an error or, if `limited`, the
    longest. `model` is what errors call the model; the default is the name of the file."""

    context: int | None = None
    cache: CacheType | None = None
    rings: bool = True
    least: int = 0
    limited: bool = False
    model: str = ""

    def __post_init__(self) -> None:
        if self.context is not None:
            object.__setattr__(self, "context", integer("context", self.context))
            if self.context < 1:
                raise InputError(f"context must be at least 1, not {self.context}")
        if self.cache is not None and self.cache not in get_args(CacheType):
            *others, last = get_args(CacheType)
            raise InputError(f"cache must be {', '.join(others)} or {last}, not {self.cache!r}")

    def length(self, file: ProgramFile) -> int:
        """The context of a program with these options; 0 if it does not state one."""
        longest = longest_context(file)
        if self.context is None:
            return max(stated_context(file), min(self.least, longest))
        if self.context > longest and self.limited:
            return longest
        if self.context > longest:
            most = f"the program's longest is {longest}" if longest else "the program does not state its own"
            raise InputError(f"{self.model or file.name}: a context of {self.context} tokens, but {most}")
        return self.context

    def check(self, device: Device) -> None:
        """Raise if a device cannot have these caches."""
        if self.cache == "f16" and not device.target.shader_f16:
            raise UnsupportedError(f"{device.name} has no 16-bit floats (shader-f16), which cache f16 needs")

    def adapt(self, file: ProgramFile, graph: Graph) -> Graph:
        """A graph of the file with these caches."""
        length, stated = self.length(file), stated_context(file)
        caches = find_caches(graph)
        are_those_of_file = length == stated == longest_context(file) and self.cache is None
        if are_those_of_file and not (self.rings and any(cache.window for cache in caches.values())):
            return graph
        changes: dict[int, _Change] = {}
        for id, cache in caches.items():
            if cache.constant is None:
                continue
            for node in cache.other_uses():
                raise UnsupportedError(
                    f"{graph.name}, {node}: uses {cache.tensor} not as a KV cache by rows, so neither the "
                    "context nor the type of the cache can be chosen at load"
                )
            dtype, row = self._row(graph, cache.tensor)
            rows = cache.tensor.shape_max[1] if length == stated else length
            if self.rings and cache.window is not None:
                rows = min(rows, cache.window + max(_chunk(graph), AHEAD))
            rows = _aligned(rows, prod(row) * dtype.itemsize)
            changes[id] = _Change((1, rows, *row), dtype, True)
        if changes and _constant(file, LONGEST):
            for table in _tables(graph):
                rows, columns = table.shape_max
                changes[table.id] = _Change((min(rows, length), columns), table.dtype, False)
        for source, result in prepacked(graph):
            if result.id in changes:
                changes[source.id] = changes[result.id]
        return _changed(graph, changes) if changes else graph

    def _row(self, graph: Graph, cache: Tensor) -> tuple[DType, Shape]:
        """The element type and the shape of a row in a cache, with the chosen type."""
        heads, width = cache.shape_max[2], int(head_width(cache))
        if self.cache != "int8":
            return cache.dtype if self.cache is None else DType(self.cache), (heads, width)
        if width % 4:
            raise UnsupportedError(
                f"{graph.name}, {cache}: heads of {width} elements, but cache int8 takes multiples of 4; "
                "use f16 or f32"
            )
        return DType.I32, (heads, words_of(width))


@dataclass(frozen=True, slots=True)
class _Change:
    """The new shape and type of a tensor. Its first content is zeros, or the first rows of its own."""

    shape: Shape
    dtype: DType
    is_zero: bool

    def of(self, tensor: Tensor) -> Tensor:
        constant = tensor.constant
        if constant is not None:
            size = 0 if self.is_zero else numel(self.shape) * self.dtype.itemsize
            constant = Constant(constant.key, self.dtype, self.shape, constant.data[:size])
        return replace(tensor, shape_max=self.shape, dtype=self.dtype, constant=constant)


def longest_context(file: ProgramFile) -> int:
    """The longest context that a program allows; 0 if it does not state one."""
    return _constant(file, LONGEST) or stated_context(file)


def stated_context(file: ProgramFile) -> int:
    """The context of the caches in a program: the most tokens of a sequence; 0 if it does not state one."""
    return _constant(file, "get_max_context_len") or _constant(file, "get_max_seq_len")


def _constant(file: ProgramFile, name: str) -> int:
    """The result of a method that returns one constant integer; 0 if the program has no such method."""
    for record in file.methods:
        if record.name == name:
            values = [record.values[output] for output in record.outputs]
            if record.instructions or len(values) != 1 or type(values[0]) is not int or values[0] < 0:
                raise FormatError(f"{file.name}: {name} is no constant number of tokens: {values}")
            return values[0]
    return 0


def _aligned(rows: int, row_bytes: int) -> int:
    """The number of rows, a few more if needed, that is aligned in the slots of a batch."""
    multiple = SLOT_ALIGNMENT // gcd(row_bytes, SLOT_ALIGNMENT)
    return -(-rows // multiple) * multiple


def _chunk(graph: Graph) -> int:
    """The most tokens of one call."""
    tokens = graph.inputs[0] if graph.inputs else None
    return tokens.shape_max[-1] if isinstance(tokens, Tensor) and tokens.shape_max else 1


def _tables(graph: Graph) -> list[Tensor]:
    """Constant matrices, all of whose uses read rows at the positions of a call's tokens."""
    found = {result.id: result for _, result in prepacked(graph) if len(result.shape_max) == 2}
    for node in graph.nodes:
        for tensor in (tensor for value in node.args for tensor in tensors(value)):
            if tensor.id in found and not _reads_at_positions(node, tensor):
                del found[tensor.id]
    return list(found.values())


def _reads_at_positions(node: Node, table: Tensor) -> bool:
    if node.name == "et_vk.apply_rotary_emb_hf.default":
        return table in node.args[2:4]
    is_rows = node.name == "aten.slice_copy.Tensor" and node.args[1] == 0 and isinstance(node.args[2], SymInt)
    return is_rows or node.name == PREPACK


def _changed(graph: Graph, changes: Mapping[int, _Change]) -> Graph:
    made: dict[int, Tensor] = {}

    def new(value: Value) -> Value:
        if not isinstance(value, Tensor) or value.id not in changes:
            return value
        return made.setdefault(value.id, changes[value.id].of(value))

    nodes = tuple(Node(node.index, node.name, tuple(map(new, node.args))) for node in graph.nodes)
    return replace(graph, nodes=nodes)
