"""GRAPH -> CALLS: bind operators, find what runs only once, give every tensor its buffer."""

from pteron.passes.placement import Placement, StateSpec, place
from pteron.passes.prepare import Prepared, prepare
from pteron.passes.resolve import is_available, missing_operators, resolve
from pteron.passes.sources import Source

__all__ = [
    "Placement",
    "Prepared",
    "Source",
    "StateSpec",
    "is_available",
    "missing_operators",
    "place",
    "prepare",
    "resolve",
]
