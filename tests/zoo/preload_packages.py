"""What is imported once for the architectures of `scripts/models`, beside `zoo.preload`."""

from __future__ import annotations

import importlib

import zoo.preload
import zoo.table  # noqa: F401
from zoo.model import import_torchvision

import_torchvision()
for name in ("timm", "transformers.models.bert.modeling_bert"):
    importlib.import_module(name)
