"""Words of a buffer that a kernel increases from step to step, without the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.gpu.buffers import Buffer
from pteron.gpu.commands import Replay, Step
from pteron.gpu.device import Device
from pteron.plan.advance import ADVANCE, GROWTHS
from pteron.wgsl import compose


@dataclass(frozen=True, slots=True)
class Growing:
    """Words of one buffer and their growth: `count` pairs of word index and increment, padded with zeros to
    GROWTHS pairs."""

    words: Buffer
    growths: Buffer
    count: int

    @classmethod
    def of(cls, device: Device, words: Buffer, growths: Sequence[tuple[int, int]]) -> Growing:
        data = np.array(growths, np.int64).astype(np.uint32)  # negative increments wrap, and so do the sums
        places = device.create_buffer(8 * max(len(growths), GROWTHS), "growth of parameters")
        device.write(places, data)
        return cls(words, places, len(growths))


def adding(device: Device, growing: Sequence[Growing]) -> Replay:
    """Dispatches that increase the words, one workgroup for each word."""
    with device.doing("binding the parameters of a loop"):
        pipeline = device.pipeline(compose(ADVANCE))
        layout = pipeline.get_bind_group_layout(0)
        bound: list[Any] = [
            device.handle.create_bind_group(
                layout=layout,
                entries=[
                    {"binding": 0, "resource": {"buffer": each.growths}},
                    {"binding": 1, "resource": {"buffer": each.words}},
                ],
            )
            for each in growing
        ]
    steps: list[Step] = [
        (pipeline._internal, group._internal, each.count, 1, 1)
        for group, each in zip(bound, growing, strict=True)
    ]
    buffers = [buffer for each in growing for buffer in (each.growths, each.words)]
    return Replay(steps, [pipeline, *bound, *buffers])
