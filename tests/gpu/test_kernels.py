"""Every kernel file is WGSL that compiles as it stands, before any declaration is swapped."""

from __future__ import annotations

from check import each
from kernel_files import FILES, kernel

from pteron.gpu import Device
from pteron.wgsl import compose


@each("name", sorted(FILES), every=3)
def test_a_kernel_compiles(name: str) -> None:
    emulated = {"IS_EMULATED": True} if "matrix" in name else {}
    Device.open().pipeline(compose(kernel(name, **emulated)))
