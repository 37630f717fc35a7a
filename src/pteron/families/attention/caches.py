"""The KV caches of a graph, and how its nodes use them.

A cache is [1, context, heads, width], one row per token. Attention by rows writes the rows of its tokens,
from `start_pos` on, and reads no later row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pteron.graph import Constant, Graph, Node, SymInt, Tensor, Value
from pteron.graph.values import tensors
from pteron.ops import OPERATORS

# By operator: the names of its cache arguments.
CACHES: Mapping[str, tuple[str, ...]] = {
    "update_cache.default": ("cache",),
    "sdpa_with_kv_cache.default": ("key_cache", "value_cache"),
    "pteron.attention.default": ("key_cache", "value_cache"),
    "custom_sdpa.default": ("key", "value"),
}
PREPACK = "et_vk.prepack.default"


@dataclass(slots=True)
class Cache:
    """A tensor that attention takes as a cache. `constant` is its initial content, in the graph."""

    tensor: Tensor
    constant: Constant | None
    uses: list[Node] = field(default_factory=list)  # all nodes that read or write it, but not PREPACK

    @property
    def is_of_one_sequence(self) -> bool:
        return len(self.tensor.shape_max) == 4 and self.tensor.shape_max[0] == 1

    @property
    def window(self) -> int | None:
        """The last keys that queries see, if all attention to it has one window: rows of older keys are not
        needed. None: they see all."""
        windows = {_arguments(node).get("window") for node in self.uses}
        (window,) = windows if len(windows) == 1 else (None,)
        return int(window) if isinstance(window, (int, float)) else None

    @property
    def ring(self) -> int:
        """The rows of a cache that is a ring (write.py) if there are more positions than rows; 0: there must
        be a row for each position."""
        rows = self.tensor.shape_max[1]
        return rows if self.window is not None and self.window < rows else 0

    def other_uses(self, positions: Collection[int] | None = None) -> Iterator[Node]:
        """The nodes that do not use it by rows or, if ids of live integers are given, not from one of these
        positions on."""
        for node in self.uses:
            given = _arguments(node)
            names = {name for name, value in given.items() if self.tensor.id in _ids(value)}
            outputs = {id for value in node.args[len(given) :] for id in _ids(value)}
            is_cache_only = names <= {*CACHES.get(node.name, ())} and self.tensor.id not in outputs
            start = given.get("start_pos")
            is_placed = positions is None or (isinstance(start, SymInt) and start.id in positions)
            # A mask may let a token attend to any row.
            is_causal = given.get("attn_mask") is None
            if not (self.is_of_one_sequence and is_cache_only and is_placed and is_causal):
                yield node


def find_caches(graph: Graph) -> dict[int, Cache]:
    """The caches by id."""
    packed = {result.id: source.constant for source, result in prepacked(graph)}
    found: dict[int, Cache] = {}
    for node in graph.nodes:
        for cache in caches_of(node):
            found.setdefault(cache.id, Cache(cache, packed.get(cache.id, cache.constant)))
    for node in graph.nodes:
        ids = {id for value in node.args for id in _ids(value)} if node.name != PREPACK else set()
        for id in ids & found.keys():
            found[id].uses.append(node)
    return found


def caches_of(node: Node) -> list[Tensor]:
    """The caches among a node's arguments."""
    named = [value for name, value in _arguments(node).items() if name in CACHES[node.name]]
    return [value for value in named if isinstance(value, Tensor)]


def prepacked(graph: Graph) -> list[tuple[Tensor, Tensor]]:
    """The constants that a node makes available, and what it makes of them."""
    pairs = [node.args for node in graph.nodes if node.name == PREPACK]
    return [pair for pair in pairs if all(isinstance(each, Tensor) for each in pair)]  # type: ignore[misc]


def _ids(value: Value) -> set[int]:
    return {tensor.id for tensor in tensors(value)}


def _arguments(node: Node) -> Mapping[str, Value]:
    """The arguments of a node with a cache, by name; outputs follow them in `args`."""
    if node.name not in CACHES:
        return {}
    names = (argument.name for argument in OPERATORS[node.name].signature.arguments)
    return dict(zip(names, node.args, strict=False))
