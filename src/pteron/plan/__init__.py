"""CALLS + LIVE SHAPES -> PLAN: pure data that says which kernels run over which buffers."""

from pteron.plan.plan import Launch, ParameterBlock, Plan, ScratchRef
from pteron.plan.planner import plan

__all__ = ["Launch", "ParameterBlock", "Plan", "ScratchRef", "plan"]
