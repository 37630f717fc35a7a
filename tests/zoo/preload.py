"""Imported once, before processes of single models are forked. Pteron is not imported here: GPU drivers do
not survive a fork."""

from __future__ import annotations

import functools
import logging
import warnings

import torch
from executorch.backends.vulkan.patterns import fusable_patterns

torch.set_num_threads(1)  # a pool of threads does not survive a fork
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
for entry in fusable_patterns.values():  # Pteron keeps them for a process, too
    if entry.get_graphs_fn is not None:
        entry.get_graphs_fn = functools.cache(entry.get_graphs_fn)
        entry.get_graphs_fn()
