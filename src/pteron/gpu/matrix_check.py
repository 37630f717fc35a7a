"""A test of an adapter's matrix cores: one product of small matrices, which must be exact."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError
from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.buffers import Buffers
from pteron.gpu.single_launch import launch_once
from pteron.wgsl import Kernel


def check(adapter: AdapterInfo) -> None:
    """Raise a DeviceError if the adapter cannot run the test kernel, or if its product is wrong."""
    device = Buffers(adapter)
    try:
        found = _product(device, Kernel("pteron.gpu", "matrix_check"))
    finally:
        device.close()
    if not np.array_equal(found, FACTORS[0] @ FACTORS[1].T):
        raise DeviceError(f"{adapter} computes wrong products of matrices with {adapter.library.name}")


# Small integers, which f16 holds and whose sums are exact; every row and column is different.
FACTORS = np.stack([np.arange(256) * 7 % 61 - 30, np.arange(256) * 11 % 53 - 26]).reshape(2, 16, 16)


def _product(device: Buffers, kernel: Kernel) -> npt.NDArray[np.float32]:
    found = launch_once(device, kernel, FACTORS.astype(np.float32), 1024)
    return np.frombuffer(found, np.float32).reshape(16, 16)
