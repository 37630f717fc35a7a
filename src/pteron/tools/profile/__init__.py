"""A program and a call of it -> where its time goes: launches, families, layers, stages of the host."""

from pteron.tools.profile.profiling import profile
from pteron.tools.profile.report import Ceilings, LaunchTime, Profile, Stage
from pteron.tools.run import Selection
from pteron.tools.subject import Decode, Prefill

__all__ = ["Ceilings", "Decode", "LaunchTime", "Prefill", "Profile", "Selection", "Stage", "profile"]
