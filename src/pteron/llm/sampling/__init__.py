"""Sampling on the GPU: logits in, the next token out."""

from pteron.llm.sampling.form import RING, Drawn
from pteron.llm.sampling.sampler import Sampler
from pteron.llm.sampling.settings import Sampling

__all__ = ["RING", "Drawn", "Sampler", "Sampling"]
