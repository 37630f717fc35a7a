"""Imported once, before the processes of architectures are forked. Pteron is not imported here: GPU drivers
do not survive a fork."""

from __future__ import annotations

import functools
import importlib
import logging
import warnings

import torch
from executorch.backends.vulkan.patterns import fusable_patterns

import zoo.table  # noqa: F401
from zoo.model import import_torchvision

torch.set_num_threads(1)  # a pool of threads does not survive a fork
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
for entry in fusable_patterns.values():  # Pteron keeps them for a process, too
    if entry.get_graphs_fn is not None:
        entry.get_graphs_fn = functools.cache(entry.get_graphs_fn)
        entry.get_graphs_fn()
import_torchvision()
for name in ("timm", "transformers.models.bert.modeling_bert"):
    importlib.import_module(name)
