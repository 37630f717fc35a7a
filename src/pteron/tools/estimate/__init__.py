"""Memory, traffic, launches and times of a program on GPUs, without one."""

from pteron.tools.estimate.estimates import estimate
from pteron.tools.estimate.gpus import Gpu, find_gpus, known_gpus
from pteron.tools.estimate.report import CallEstimate, Estimate, GpuEstimate

__all__ = ["CallEstimate", "Estimate", "Gpu", "GpuEstimate", "estimate", "find_gpus", "known_gpus"]
