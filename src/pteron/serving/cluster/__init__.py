"""One model on many machines: replicas behind one address, with Ray Serve."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.serving.cluster.deployment import build
    from pteron.serving.cluster.options import Options

__all__ = ["Options", "build"]

# Imported at first use: `build` needs Ray, `Options` does not.
_HOMES = {"Options": "options", "build": "deployment"}
__getattr__, __dir__ = lazy(__name__, _HOMES)
