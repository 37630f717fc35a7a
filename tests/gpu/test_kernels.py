"""Every kernel file is WGSL that compiles as it stands, before any declaration is swapped."""

from __future__ import annotations

from importlib.resources import files

import pytest

from pteron.gpu import Device
from pteron.wgsl import Kernel, compose

KERNELS = sorted(
    entry.name.removesuffix(".wgsl")
    for entry in (files("pteron") / "ops").iterdir()
    if entry.name.endswith(".wgsl")
)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles(name: str) -> None:
    Device.open().pipeline(compose(Kernel(name)))
