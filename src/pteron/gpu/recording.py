"""A plan made concrete for a device: a flat list of handles that is replayed at every call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pteron.gpu.buffers import Memory
from pteron.gpu.device import Buffer, Device
from pteron.gpu.native import errors_as_device_error
from pteron.plan import Launch, Plan

Step: TypeAlias = tuple[Any, Any, int, int, int]  # pipeline, bind group, grid
BLOCK_STRIDE = 256  # bytes between parameter blocks: what every adapter aligns uniform bindings to


class Recording:
    """Everything a plan needs on the device: replaying it looks nothing up and allocates nothing."""

    def __init__(self, device: Device, plan: Plan, memory: Memory, values: Mapping[int, int]) -> None:
        self.plan = plan
        self._device = device
        memory.reserve(plan)
        self._parameters = self._create_parameters(plan, values)
        self._live = plan.live_blocks
        self._live_bytes = self._live_data(values)
        self._kept: list[Any] = []  # handles below are only valid while their objects live
        self.steps: list[Step] = []
        try:
            self.steps += [self._step(launch, memory) for launch in plan.launches]
        except BaseException:
            self.close()
            raise

    @property
    def dispatches(self) -> int:
        return len(self.steps)

    def refresh(self, values: Mapping[int, int]) -> bool:
        """Bring the live parameters up to date; whether anything had to be written."""
        if not self._live:
            return False
        data = self._live_data(values)
        if data == self._live_bytes:
            return False
        self._device.write(self._parameters, data)
        self._live_bytes = data
        return True

    def close(self) -> None:
        """Free the parameters; the other buffers belong to the memory."""
        self.steps.clear()
        self._kept.clear()
        if self._parameters is not None and not self._device.is_closed:
            self._device.free(self._parameters)

    def _create_parameters(self, plan: Plan, values: Mapping[int, int]) -> Buffer | None:
        if not plan.blocks:
            return None
        data = b"".join(block.fill(values).ljust(BLOCK_STRIDE, b"\0") for block in plan.blocks)
        buffer = self._device.create_buffer(len(data), "parameters", uniform=True)
        self._device.write(buffer, data)
        return buffer

    def _live_data(self, values: Mapping[int, int]) -> bytes:
        blocks = self.plan.blocks[: self._live]
        return b"".join(block.fill(values).ljust(BLOCK_STRIDE, b"\0") for block in blocks)

    def _step(self, launch: Launch, memory: Memory) -> Step:
        module = launch.module
        pipeline = self._device.pipeline(module)
        entries = [
            {"binding": binding.index, "resource": {"buffer": memory[reference]}}
            for binding, reference in zip(module.bindings, launch.buffers, strict=True)
        ]
        if launch.block is not None:
            offset = launch.block * BLOCK_STRIDE
            resource = {"buffer": self._parameters, "offset": offset, "size": module.params_size}
            entries.append({"binding": module.params_index, "resource": resource})
        with errors_as_device_error(f"binding the buffers of {launch.node}"):
            layout = pipeline.get_bind_group_layout(0)
            group = self._device.handle.create_bind_group(layout=layout, entries=entries)
        self._kept += [pipeline, group]
        return pipeline._internal, group._internal, *launch.groups
