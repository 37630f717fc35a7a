"""Programs and language models -> how long calls and tokens take, and whether that got worse."""

from pteron.tools.bench.report import Bench, Case
from pteron.tools.bench.running import bench
from pteron.tools.bench.trials import Pace
from pteron.tools.bench.verdict import Comparison, Judgement, judge
from pteron.tools.run import Selection
from pteron.tools.subject import Decode, Prefill

__all__ = [
    "Bench",
    "Case",
    "Comparison",
    "Decode",
    "Judgement",
    "Pace",
    "Prefill",
    "Selection",
    "bench",
    "judge",
]
