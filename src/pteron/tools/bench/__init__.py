"""Programs and language models -> how long calls and tokens take, and whether that became worse."""

from pteron.tools.bench.benchmark import Pace, bench
from pteron.tools.bench.report import Bench, Case, Judgement, judge
from pteron.tools.workload import Decode, Prefill, Selection

__all__ = ["Bench", "Case", "Decode", "Judgement", "Pace", "Prefill", "Selection", "bench", "judge"]
