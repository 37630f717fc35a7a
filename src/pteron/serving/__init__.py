"""Serving a language model to many users at once."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.llm.engine import Answer, Busy, Engine, Load, Request

__all__ = ["Answer", "Busy", "Engine", "Load", "Request"]

_HOMES = dict.fromkeys(__all__, "pteron.llm.engine")
__getattr__, __dir__ = lazy(__name__, _HOMES, driving={*_HOMES.values()})
