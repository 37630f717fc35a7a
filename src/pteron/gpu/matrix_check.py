"""A test of an adapter's matrix cores: one product of small matrices, which must be exact."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError
from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.buffers import Buffers
from pteron.gpu.commands import Replay
from pteron.gpu.submit import submit
from pteron.wgsl import Kernel, compose


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
    x, out = device.create_buffer(2048, "matrices"), device.create_buffer(1024, "their product")
    device.write(x, FACTORS.astype(np.float32))
    with device.translate_errors("multiplying two matrices"):
        shader = device.library.compile_shader(device.handle, compose(kernel))
        compute = {"module": shader, "entry_point": "main"}
        pipeline = device.handle.create_compute_pipeline(label="matrix_check", layout="auto", compute=compute)
        entries = [{"binding": index, "resource": {"buffer": each}} for index, each in enumerate((x, out))]
        layout = pipeline.get_bind_group_layout(0)
        group = device.handle.create_bind_group(layout=layout, entries=entries)
    launch = pipeline._internal, group._internal, 1, 1, 1
    submit(device, [Replay([launch], [pipeline, group, x, out])])
    return np.frombuffer(device.read(out, 1024), np.float32).reshape(16, 16)
