"""The buffers behind a graph's plans: slots, states, weights and scratch, each created once."""

from __future__ import annotations

from collections.abc import Iterable

from pteron.gpu.device import Buffer, Device
from pteron.graph import Constant
from pteron.ops.operand import Slot, State, Weight
from pteron.passes import Placement
from pteron.plan import Plan, ScratchRef
from pteron.plan.plan import PlanBuffer


class Memory:
    """All GPU memory of one delegate."""

    def __init__(self, device: Device, placement: Placement, name: str) -> None:
        self._device = device
        self._name = name
        self._states = placement.states
        self._buffers: dict[PlanBuffer, Buffer] = {}
        self._old_scratch: list[Buffer] = []
        try:
            for index, size in enumerate(placement.slot_bytes):
                self._buffers[Slot(index)] = device.create_buffer(size, f"{name} slot {index}")
            self.reset_states()
        except BaseException:
            self.close()
            raise

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes in weights, states, activations and scratch."""
        total = {"weights": 0, "states": 0, "activations": 0, "scratch": 0}
        kinds = {Weight: "weights", State: "states", Slot: "activations", ScratchRef: "scratch"}
        for reference, buffer in self._buffers.items():
            total[kinds[type(reference)]] += buffer.size
        return total

    def __getitem__(self, reference: PlanBuffer) -> Buffer:
        """The buffer of a reference; a weight is uploaded when it is first asked for."""
        if reference not in self._buffers:
            assert isinstance(reference, Weight)
            array = reference.pack()
            label = f"{self._name} weight {reference.constant.key[:12]}"
            buffer = self._device.create_buffer(reference.bytes, label)
            self._device.write(buffer, array)
            self._buffers[reference] = buffer
        return self._buffers[reference]

    def reserve(self, plan: Plan) -> None:
        """Make scratch memory as large as a plan needs it."""
        for index, size in enumerate(plan.scratch_bytes):
            reference = ScratchRef(index)
            buffer = self._buffers.get(reference)
            if buffer is not None and buffer.size >= size:
                continue
            if buffer is not None:
                self._old_scratch.append(buffer)  # earlier plans are bound to it
            self._buffers[reference] = self._device.create_buffer(size, f"{self._name} scratch {index}")

    def reset_states(self) -> None:
        """Bring every state back to its initial value; buffers start as zeros, so zeros are never sent."""
        for id, state in self._states.items():
            reference = State(id)
            fresh = reference not in self._buffers
            if fresh:
                label = f"{self._name} state %{id}"
                self._buffers[reference] = self._device.create_buffer(state.bytes, label)
            if not _is_zero(state.initial):
                assert state.initial is not None
                self._device.write(
                    self._buffers[reference], state.initial.numpy().astype(state.storage.numpy)
                )
            elif not fresh:
                self._clear(self._buffers[reference])

    def close(self) -> None:
        """Free everything."""
        buffers: Iterable[Buffer] = [*self._buffers.values(), *self._old_scratch]
        self._buffers, self._old_scratch = {}, []
        if not self._device.is_closed:
            for buffer in buffers:
                self._device.free(buffer)

    def _clear(self, buffer: Buffer) -> None:
        encoder = self._device.handle.create_command_encoder()
        encoder.clear_buffer(buffer, 0, buffer.size)
        self._device.handle.queue.submit([encoder.finish()])


def _is_zero(constant: Constant | None) -> bool:
    return constant is None or not constant.bytes().any()
