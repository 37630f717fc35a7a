"""Memory, traffic, launches and times of a program on GPUs, without one."""

from pteron.tools.estimate.estimates import CallEstimate, Estimate, GpuEstimate, estimate
from pteron.tools.estimate.gpus import Gpu, find_gpus, known_gpus

__all__ = ["CallEstimate", "Estimate", "Gpu", "GpuEstimate", "estimate", "find_gpus", "known_gpus"]
