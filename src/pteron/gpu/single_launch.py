"""One launch of a kernel without a plan, for tests of an adapter."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.gpu.buffers import Buffers
from pteron.gpu.commands import Replay
from pteron.gpu.submit import submit
from pteron.wgsl import Kernel, compose


def launch_once(device: Buffers, kernel: Kernel, given: npt.NDArray[Any], out_bytes: int) -> bytes:
    """What one workgroup of a kernel writes to its second binding; the first has the given elements."""
    x = device.create_buffer(given.nbytes, f"the input of {kernel.name}")
    out = device.create_buffer(out_bytes, f"the output of {kernel.name}")
    try:
        device.write(x, np.ascontiguousarray(given))
        with device.translate_errors(f"running {kernel.name}"):
            shader = device.library.compile_shader(device.handle, compose(kernel))
            compute = {"module": shader, "entry_point": "main"}
            make = device.handle.create_compute_pipeline
            pipeline = make(label=kernel.name, layout="auto", compute=compute)
            entries = [
                {"binding": index, "resource": {"buffer": each}} for index, each in enumerate((x, out))
            ]
            layout = pipeline.get_bind_group_layout(0)
            group = device.handle.create_bind_group(layout=layout, entries=entries)
        launch = pipeline._internal, group._internal, 1, 1, 1
        submit(device, [Replay([launch], [pipeline, group, x, out])])
        return bytes(device.read(out, out_bytes))
    finally:
        device.free(x)
        device.free(out)
