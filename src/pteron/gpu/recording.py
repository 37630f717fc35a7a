"""A plan made concrete for a device: a flat list of handles that is replayed at every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pteron.gpu.commands import Replay
from pteron.gpu.device import Buffer, Device
from pteron.gpu.memory import Arena, States, Weights
from pteron.gpu.native import errors_as_device_error
from pteron.ops.operand import State, Weight
from pteron.plan import Launch, Plan, PlanBuffer, ScratchRef

BLOCK_STRIDE = 256  # bytes between parameter blocks: what every adapter aligns uniform bindings to


class Recording:
    """Everything a plan needs on the device: replaying it looks nothing up and allocates nothing.

    Sequences share all but the bindings of their states, so each has a list of steps of its own.
    """

    def __init__(
        self, device: Device, plan: Plan, arena: Arena, weights: Weights, numbers: Sequence[int]
    ) -> None:
        self.plan = plan
        self._device = device
        self._arena = arena
        self._weights = weights
        self._scratch = arena.reserve(plan)
        self._live = plan.live_blocks
        self._written: bytes | None = None
        with device.compiling(launch.module for launch in plan.launches):
            weights.upload(buffer for launch in plan.launches for buffer in launch.buffers)
        self._parameters = self._create_parameters(numbers)
        self._shared = {
            index: self._bind(launch, None)
            for index, launch in enumerate(plan.launches)
            if not any(isinstance(buffer, State) for buffer in launch.buffers)
        }
        self._replays: WeakKeyDictionary[States, Replay] = WeakKeyDictionary()

    @property
    def dispatches(self) -> int:
        return len(self.plan.launches)

    def replay(self, states: States | None = None) -> Replay:
        """The steps over a sequence's states, which a plan without any can do without."""
        if states is None:
            return self._bound(None)
        replay = self._replays.get(states)
        if replay is None:
            replay = self._replays[states] = self._bound(states)
        return replay

    def refresh(self, numbers: Sequence[int]) -> bool:
        """Bring the live parameters up to date; whether anything had to be written."""
        if not self._live:
            return False
        data = self._filled(numbers, self._live)
        if data == self._written:
            return False
        self._written = None  # if the write is interrupted, nothing is known of what is there
        self._device.write(self._parameters, data)
        self._written = data
        return True

    def close(self) -> None:
        """Free the parameters; the other buffers have owners of their own."""
        self._replays.clear()
        self._shared.clear()
        if self._parameters is not None:
            self._device.free(self._parameters)

    def _create_parameters(self, numbers: Sequence[int]) -> Buffer | None:
        if not self.plan.blocks:
            return None
        data = self._filled(numbers, len(self.plan.blocks))
        buffer = self._device.create_buffer(len(data), "parameters", uniform=True)
        self._device.write(buffer, data)
        self._written = data[: self._live * BLOCK_STRIDE]
        return buffer

    def _filled(self, numbers: Sequence[int], count: int) -> bytes:
        return b"".join(block.fill(numbers).ljust(BLOCK_STRIDE, b"\0") for block in self.plan.blocks[:count])

    def _bound(self, states: States | None) -> Replay:
        """The steps with what sequences share, and what touches states bound anew."""
        bound = [
            self._shared[index] if index in self._shared else self._bind(launch, states)
            for index, launch in enumerate(self.plan.launches)
        ]
        steps = [
            (pipeline._internal, group._internal, *launch.groups)
            for (pipeline, group), launch in zip(bound, self.plan.launches, strict=True)
        ]
        return Replay(steps, [self._parameters, *bound])

    def _bind(self, launch: Launch, states: States | None) -> tuple[Any, Any]:
        """The pipeline and bind group of a launch."""
        module = launch.module
        pipeline = self._device.pipeline(module)
        entries = [
            {"binding": binding.index, "resource": {"buffer": self._buffer(reference, states)}}
            for binding, reference in zip(module.bindings, launch.buffers, strict=True)
        ]
        if launch.block is not None:
            offset = launch.block * BLOCK_STRIDE
            resource = {"buffer": self._parameters, "offset": offset, "size": module.params_size}
            entries.append({"binding": module.params_index, "resource": resource})
        with errors_as_device_error(f"binding the buffers of {launch}"):
            layout = pipeline.get_bind_group_layout(0)
            return pipeline, self._device.handle.create_bind_group(layout=layout, entries=entries)

    def _buffer(self, reference: PlanBuffer, states: States | None) -> Buffer:
        if isinstance(reference, Weight):
            return self._weights[reference]
        if isinstance(reference, State):
            assert states is not None
            return states[reference]
        return self._scratch[reference.index] if isinstance(reference, ScratchRef) else self._arena[reference]
