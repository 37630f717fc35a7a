"""Kernels with loops say how long they run, so that no adapter ends them early and unnoticed."""

from __future__ import annotations

import re

import pytest
from kernel_files import FILES, kernel

from pteron.wgsl import compose

FAMILIES = ("attention", "create", "elementwise", "index", "layout", "rope")


@pytest.mark.parametrize("name", [name for name, path in FILES.items() if path.parent.name in FAMILIES])
def test_a_kernel_with_a_loop_states_it(name: str) -> None:
    module = compose(kernel(name))
    if re.search(r"\b(for|while|loop) *[({]", module.source):
        assert module.statements.loops is not None
