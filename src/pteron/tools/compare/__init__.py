"""Which node is wrong: what a program's nodes give on a GPU, each beside a reference on the same inputs."""

from pteron.tools.compare.comparing import compare
from pteron.tools.compare.errors import Errors
from pteron.tools.compare.replaying import Replayed, replay
from pteron.tools.compare.report import Comparison, Row, Verdict
from pteron.tools.compare.tolerances import Tolerances

__all__ = ["Comparison", "Errors", "Replayed", "Row", "Tolerances", "Verdict", "compare", "replay"]
