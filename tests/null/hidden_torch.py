"""Scripts run in a process where PyTorch cannot be imported."""

from __future__ import annotations

import subprocess
import sys

# Hides PyTorch and everything that would bring it in, also from importlib.util.find_spec.
HIDE_TORCH = """
import importlib.abc, importlib.util, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchao", "executorch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
find_spec = importlib.util.find_spec

def find_nothing(name, package=None):
    return None if name.partition(".")[0] == "torch" else find_spec(name, package)

importlib.util.find_spec = find_nothing

import numpy as np
import pteron

assert "torch" not in sys.modules
"""


def run(script: str, *arguments: object) -> str:
    """What a script prints that runs where PyTorch is not installed; its failure fails the test."""
    command = [sys.executable, "-c", HIDE_TORCH + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
