"""A program and a call -> where the time goes: launches, families, layers, stages of the host."""

from pteron.tools.profile.profiler import profile
from pteron.tools.profile.report import Ceilings, LaunchTime, Profile, Stage
from pteron.tools.workload import Decode, Prefill, Selection

__all__ = ["Ceilings", "Decode", "LaunchTime", "Prefill", "Profile", "Selection", "Stage", "profile"]
