"""Programs and language models -> how long calls and tokens take, and whether that got worse."""

from pteron.tools.bench.report import Bench, Case
from pteron.tools.bench.running import Pace, bench
from pteron.tools.bench.verdict import Comparison, Judgement, judge

__all__ = ["Bench", "Case", "Comparison", "Judgement", "Pace", "bench", "judge"]
