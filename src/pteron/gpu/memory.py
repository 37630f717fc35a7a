"""GPU memory and its owners: weights belong to a device, states to a sequence, the arena to a session.

Weights of equal content and layout share one buffer across programs, methods and sequences. States, a KV
cache for example, live from one call of a sequence to the next. The arena is the memory of a running call;
calls do not overlap, so all sequences of a session share it.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from functools import partial
from weakref import WeakSet, finalize

import numpy as np
import numpy.typing as npt

from pteron.errors import DeviceError, OutOfMemory, StateLost
from pteron.gpu.buffers import Buffer
from pteron.gpu.commands import Copy
from pteron.gpu.device import Device, Upload
from pteron.gpu.submit import submit
from pteron.gpu.worker_pool import run_in_parallel
from pteron.ops.operand import Slot, State, Weight
from pteron.passes import StateSpec
from pteron.plan import Executable, Plan
from pteron.system import free_memory

UPLOADERS = 8  # threads: a copy into newly mapped memory waits for page faults
_STAGING = 1 << 21  # bytes that a thread reads from a file at a time


class Weights:
    """The weights of a session. Sessions on the same device share the buffers of equal weights."""

    def __init__(self, device: Device, name: str) -> None:
        self._device = device
        self._name = name
        self._used: dict[Weight, Buffer] = {}
        self._end = finalize(self, _release, device, self._used)
        self._end.atexit = False

    def __getitem__(self, weight: Weight) -> Buffer:
        """The weight's buffer, uploaded at the first use by any session."""
        if weight not in self._used:
            if weight not in self._device.uploads:
                self.upload([weight])
            upload = self._device.uploads[weight]
            self._used[weight] = upload.buffer
            upload.users.add(id(self._used))
        return self._used[weight]

    def upload(self, buffers: Iterable[object]) -> None:
        """Upload the weights in `buffers` that are not on the device yet, in several threads."""
        wanted = dict.fromkeys(buffer for buffer in buffers if isinstance(buffer, Weight))
        uploads = self._device.uploads
        new = [weight for weight in wanted if weight not in uploads]
        try:
            # Largest first: a large upload at the end would leave the other threads idle.
            largest_first = sorted(new, key=lambda weight: -weight.bytes)
            spare = [np.empty(_STAGING, np.uint8).data for _ in new[: UPLOADERS + 1]]  # +1: this thread
            run_in_parallel([partial(self._upload, weight, spare) for weight in largest_first], UPLOADERS)
            for weight in wanted:
                self[weight]
        except BaseException:
            for weight in new:
                if weight in uploads and not uploads[weight].users:
                    self._device.free(uploads.pop(weight).buffer)
            raise

    def _upload(self, weight: Weight, spare: list[memoryview]) -> None:
        buffer = self._device.create_buffer(weight.bytes, f"{self._name} {weight.constant.key[:12]}")
        staging = spare.pop()
        for start, piece in weight.pack_in_pieces(staging):
            self._device.write(buffer, piece, start)
        spare.append(staging)
        self._device.uploads[weight] = Upload(buffer)

    @property
    def bytes(self) -> int:
        return sum(buffer.size for buffer in self._used.values())

    def close(self) -> None:
        """Release the weights, and free those that no other session uses. Further calls do nothing."""
        _release(self._device, self._used)
        self._end.detach()


def _release(device: Device, used: dict[Weight, Buffer]) -> None:
    with device.lock:
        for weight in list(used):
            upload = device.uploads.get(weight)  # None if the device is closed
            if upload is not None:
                upload.users.discard(id(used))
                if not upload.users:
                    device.free(device.uploads.pop(weight).buffer)
            used.pop(weight, None)


class States:
    """The states of one sequence of calls, or some of them; each starts with its initial value."""

    def __init__(self, device: Device, executable: Executable, ids: Iterable[int] | None = None) -> None:
        self._device = device
        self._name = executable.name
        self._specs = executable.states if ids is None else {id: executable.states[id] for id in ids}
        self._initial: dict[int, Weight] = {}  # of states that do not start as zeros
        self._buffers: dict[int, Buffer] = {}
        self._starts: dict[int, int] = {}  # offset in bytes of states that are a part of a buffer
        self._is_closed = False
        self.is_valid = True  # False: a call failed while it changed them
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        for id, spec in self._specs.items():
            self._create(id, spec)

    def _create(self, id: int, spec: StateSpec) -> None:
        """Create the buffer of a state."""
        self._buffers[id] = self._device.create_buffer(spec.bytes, f"{self._name} state %{id}")
        if spec.initial is not None and spec.initial.constant.bytes().any():
            self._initial[id] = spec.initial
            self._device.write(self._buffers[id], spec.initial.pack())

    def __getitem__(self, state: State) -> Buffer:
        self.check_open()
        return self._buffers[state.id]

    def part(self, state: State) -> tuple[int, int] | None:
        """Offset and size in bytes of a state in its buffer; None if it is the whole buffer."""
        start = self._starts.get(state.id)
        return None if start is None else (start, self._specs[state.id].bytes)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def check_open(self) -> None:
        if self._is_closed:
            raise DeviceError(f"{self._name}: the sequence is closed")

    def invalidate(self) -> None:
        """Mark the content as unknown. Call this before states change: the change may fail halfway."""
        self.is_valid = not self._specs

    def check_valid(self) -> None:
        """Raise StateLost if the content is unknown."""
        if not self.is_valid:
            raise StateLost(
                f"{self._name}: an earlier call failed while it changed the caches and buffers that live "
                "across calls; reset() restores their initial values"
            )

    @staticmethod
    def bytes_of(device: Device, executable: Executable) -> int:
        """GPU memory of the states of one more sequence."""
        sizes = (spec.bytes for spec in executable.states.values())
        return sum(device.check_size(size, f"{executable.name}, states") for size in sizes)

    @property
    def bytes(self) -> int:
        return sum(
            self._specs[id].bytes if id in self._starts else buffer.size
            for id, buffer in self._buffers.items()
        )

    def copy(self, source: States, sizes: Mapping[int, int]) -> None:
        """Copy the first `sizes[id]` bytes of another sequence's states, before any command submitted later.
        WebGPU cannot copy within one buffer: states in the same buffer go through a temporary one."""
        self.check_open()
        source.check_open()
        same = [size for id, size in sizes.items() if source._buffers[id] is self._buffers[id]]
        between = self._device.create_buffer(max(same), f"{self._name} copied states") if same else None
        try:
            submit(self._device, self._copies(source, sizes, between))
        finally:
            if between is not None:
                self._device.free(between)  # submitted commands may still use it

    def _copies(self, source: States, sizes: Mapping[int, int], between: Buffer) -> list[Copy]:
        copies = []
        for id, size in sizes.items():
            origin, start, target = source._buffers[id], source._start(id), self._start(id)
            if origin is self._buffers[id]:
                copies.append(Copy(origin, between, size, 0, start))
                origin, start = between, 0
            copies.append(Copy(origin, self._buffers[id], size, target, start))
        return copies

    def read(self, sizes: Mapping[int, int]) -> list[builtins.bytes]:
        """The first bytes of states, after all commands submitted so far."""
        self.check_open()
        return [self._device.read(self._buffers[id], size, self._start(id)) for id, size in sizes.items()]

    def write(self, contents: Mapping[int, npt.NDArray[np.uint8]]) -> None:
        """Write bytes at the beginning of states, before any command submitted later."""
        self.check_open()
        for id, data in contents.items():
            self._device.write(self._buffers[id], data, self._start(id))

    def _start(self, id: int) -> int:
        """The offset of a state in its buffer."""
        return self._starts.get(id, 0)

    def reset(self) -> None:
        """Set every state to its initial value."""
        self.check_open()
        self.invalidate()
        for id, buffer in self._buffers.items():
            if id in self._initial:
                self._device.write(buffer, self._initial[id].pack())
            else:
                start, size = self.part(State(id)) or (0, buffer.size)
                self._device.clear(buffer, start, size)
        self.is_valid = True

    def close(self) -> None:
        self._is_closed = True
        for buffer in self._buffers.values():
            self._device.free(buffer)
        self._buffers = {}


class BorrowedStates(States):
    """States of another session's sequence, for a graph that has states of the same ids and sizes. States
    that `ids` does not name have buffers of their own."""

    def __init__(self, executable: Executable, lender: States, ids: Iterable[int]) -> None:
        self.lender = lender
        self._borrowed = frozenset(ids)
        super().__init__(lender._device, executable)

    def _make(self) -> None:
        for id, spec in self._specs.items():
            if id not in self._borrowed:
                self._create(id, spec)
                continue
            self._buffers[id] = self.lender._buffers[id]
            if id in self.lender._starts:
                self._starts[id] = self.lender._starts[id]

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self.lender.is_closed

    def check_open(self) -> None:
        super().check_open()
        self.lender.check_open()

    def close(self) -> None:
        for id in self._borrowed:
            self._buffers.pop(id, None)
        super().close()


class Arena:
    """Memory of a running call: the slots that tensors share over time, and scratch memory."""

    def __init__(self, device: Device, executable: Executable) -> None:
        self._device = device
        self._name = executable.name
        self._slots: list[Buffer] = []
        self._scratch: list[Buffer] = []
        self._outgrown: WeakSet[Buffer] = WeakSet()  # replaced; they belong to earlier plans
        try:
            for index, size in enumerate(executable.slots):
                self._slots.append(self._create(size, f"slot {index}"))
        except BaseException:
            self.close()
            raise

    def __getitem__(self, slot: Slot) -> Buffer:
        return self._slots[slot.index]

    @property
    def bytes_by_kind(self) -> Mapping[str, int]:
        return {
            "activations": sum(buffer.size for buffer in self._slots),
            "scratch": sum(buffer.size for buffer in (*self._scratch, *self._outgrown)),
        }

    def reserve(self, plan: Plan) -> tuple[Buffer, ...]:
        """Scratch memory for a plan. The plan keeps these buffers even if a later plan replaces them by
        larger ones."""
        slack = self._device.target.slack
        for index, size in enumerate(plan.scratch_bytes):
            if index < len(self._scratch) and self._scratch[index].size >= size + slack:
                continue
            buffer = self._create(size, f"scratch {index}")
            if index < len(self._scratch):
                self._outgrown.add(self._scratch[index])
                self._scratch[index] = buffer
            else:
                self._scratch.append(buffer)
        return tuple(self._scratch[: len(plan.scratch_bytes)])

    def _create(self, size: int, name: str) -> Buffer:
        return self._device.create_buffer(size + self._device.target.slack, f"{self._name} {name}")

    def close(self) -> None:
        for buffer in (*self._slots, *self._scratch, *self._outgrown):
            self._device.free(buffer)
        self._slots, self._scratch = [], []
        self._outgrown.clear()


def check_room(device: Device, executable: Executable, plan: Plan | None) -> None:
    """Raise a DeviceError if a buffer exceeds a device limit. On a software adapter, raise OutOfMemory if the
    buffers exceed the machine's free memory; WebGPU does not report the free memory of a GPU."""
    weights = dict.fromkeys(executable.weights())
    if plan:
        bound = [buffer for launch in plan.launches for buffer in launch.buffers]
        weights |= dict.fromkeys(buffer for buffer in bound if isinstance(buffer, Weight))
    new = {weight: weight.bytes for weight in weights if weight not in device.uploads}
    sizes: Mapping[str, list[int]] = {
        "weights": list(new.values()),
        "activations": list(executable.slots),
        "states": [state.bytes for state in executable.states.values()],
        "scratch memory": list(plan.scratch_bytes) if plan else [],
    }
    for kind, each in sizes.items():
        device.check_size(max(each, default=0), f"{executable.name}, {kind}")
    needed = {kind: sum(each) for kind, each in sizes.items() if each}
    listed = ", ".join(f"{kind} {size:,}" for kind, size in needed.items())
    _check_free(device, executable, sum(needed.values()), f"({listed})")


def check_room_for_states(device: Device, executable: Executable) -> None:
    """`check_room` for the states of one more sequence."""
    needed = sum(state.bytes for state in executable.states.values())
    _check_free(device, executable, needed, "for another sequence")


def _check_free(device: Device, executable: Executable, needed: int, purpose: str) -> None:
    free = free_memory() if device.target.is_cpu else None
    if free is not None and needed > free:
        raise OutOfMemory(
            f"{executable.name} needs {needed:,} bytes on {device.adapter} {purpose}; "
            f"this machine has {free:,} free"
        )
