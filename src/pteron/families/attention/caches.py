"""The operators' tensors that are KV caches: [1, context, heads, width], a row per token."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pteron.graph import Node, Value
from pteron.ops import OPERATORS

# By operator: the names of its cache arguments.
CACHES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "update_cache.default": ("cache",),
        "sdpa_with_kv_cache.default": ("key_cache", "value_cache"),
        "custom_sdpa.default": ("key", "value"),
    }
)


def caches_of(node: Node) -> list[Value]:
    """The caches among a node's arguments."""
    if node.name not in CACHES:
        return []
    arguments = OPERATORS[node.name].signature.arguments  # outputs follow them in node.args
    given = zip(arguments, node.args, strict=False)
    return [value for argument, value in given if argument.name in CACHES[node.name]]
