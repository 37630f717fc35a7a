"""A program and a call of it -> where its time goes: launches, families, layers, stages of the host."""

from pteron.tools.profile.profiling import profile
from pteron.tools.profile.report import Ceilings, LaunchTime, Profile, Stage

__all__ = ["Ceilings", "LaunchTime", "Profile", "Stage", "profile"]
