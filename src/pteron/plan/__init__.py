"""CALLS + LIVE SHAPES -> PLAN: pure data that says which kernels run over which buffers."""

from pteron.plan.advance import Advance
from pteron.plan.compiled import Compiled
from pteron.plan.executable import Executable, Port, Shapes, SymbolPort, TensorPort
from pteron.plan.plan import IndexRange, Launch, ParameterBlock, Plan, PlanBuffer, ScratchRef

__all__ = [
    "Advance",
    "Compiled",
    "Executable",
    "IndexRange",
    "Launch",
    "ParameterBlock",
    "Plan",
    "PlanBuffer",
    "Port",
    "ScratchRef",
    "Shapes",
    "SymbolPort",
    "TensorPort",
]
