"""Choosing the next token on the GPU."""

from pteron.llm.sampling.operator import RING
from pteron.llm.sampling.sampler import Sampler
from pteron.llm.sampling.settings import Sampling

__all__ = ["RING", "Sampler", "Sampling"]
