"""Words of a buffer that grow from step to step, by a kernel: nothing of it needs the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pteron.gpu.device import Buffer, Device
from pteron.gpu.native import errors_as_device_error
from pteron.plan.advance import ADVANCE
from pteron.wgsl import compose


def adding(device: Device, words: Buffer, growths: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """The pipeline and bind group that add to the words of a buffer: (place, growth), each place once and
    taken by one workgroup. The list lives as long as the bind group."""
    data = np.array(growths, np.int64).astype(np.uint32)  # negative ones wrap, and so do their sums
    places = device.create_buffer(data.nbytes, "growth of parameters")
    device.write(places, data)
    with errors_as_device_error("binding the parameters of a loop"):
        pipeline = device.pipeline(compose(ADVANCE))
        entries = [
            {"binding": 0, "resource": {"buffer": places}},
            {"binding": 1, "resource": {"buffer": words}},
        ]
        layout = pipeline.get_bind_group_layout(0)
        return pipeline, device.handle.create_bind_group(layout=layout, entries=entries)
