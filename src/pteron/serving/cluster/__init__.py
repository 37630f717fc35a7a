"""One model on many machines: replicas of it behind one address, by Ray Serve."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.serving.cluster.deployment import build
    from pteron.serving.cluster.options import Options

__all__ = ["Options", "build"]

# The modules of these names, imported when they are first asked for: one of them needs Ray.
_HOMES = {"Options": "options", "build": "deployment"}
__getattr__, __dir__ = lazy(__name__, _HOMES)
