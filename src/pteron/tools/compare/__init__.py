"""Which node is wrong: the outputs of a program's nodes on a GPU against a reference on the same inputs."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.tools.compare.comparison import compare
    from pteron.tools.compare.errors import Errors
    from pteron.tools.compare.report import Comparison, NodeResult, Verdict
    from pteron.tools.compare.reproducer import ReplayedOutput, replay
    from pteron.tools.compare.tolerances import Tolerances

__all__ = [
    "Comparison",
    "Errors",
    "NodeResult",
    "ReplayedOutput",
    "Tolerances",
    "Verdict",
    "compare",
    "replay",
]

# Imported on first use: the command's help needs none of them.
_HOMES = {
    "Comparison": "report",
    "Errors": "errors",
    "NodeResult": "report",
    "ReplayedOutput": "reproducer",
    "Tolerances": "tolerances",
    "Verdict": "report",
    "compare": "comparison",
    "replay": "reproducer",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
