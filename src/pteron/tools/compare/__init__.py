"""Which node is wrong: the outputs of a program's nodes on a GPU against a reference on the same inputs."""

from pteron.tools.accuracy import Errors, Tolerances
from pteron.tools.compare.comparison import compare
from pteron.tools.compare.report import Comparison, NodeResult, Verdict
from pteron.tools.compare.reproducer import ReplayedOutput, replay
from pteron.tools.workload import Prompt, Selection

__all__ = [
    "Comparison",
    "Errors",
    "NodeResult",
    "Prompt",
    "ReplayedOutput",
    "Selection",
    "Tolerances",
    "Verdict",
    "compare",
    "replay",
]
