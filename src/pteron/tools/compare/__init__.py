"""Which node is wrong: what a program's nodes give on a GPU, each beside a reference on the same inputs."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.tools.compare.comparing import compare
    from pteron.tools.compare.errors import Errors
    from pteron.tools.compare.replaying import Replayed, replay
    from pteron.tools.compare.report import Comparison, Row, Verdict
    from pteron.tools.compare.tolerances import Tolerances

__all__ = ["Comparison", "Errors", "Replayed", "Row", "Tolerances", "Verdict", "compare", "replay"]

# The modules of these names, imported where one is asked for: the command's help needs none of them.
_HOMES = {
    "Comparison": "report",
    "Errors": "errors",
    "Replayed": "replaying",
    "Row": "report",
    "Tolerances": "tolerances",
    "Verdict": "report",
    "compare": "comparing",
    "replay": "replaying",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
