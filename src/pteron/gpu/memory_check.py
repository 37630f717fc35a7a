"""Checks before an executable is loaded that its buffers fit on the device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pteron.errors import OutOfMemory
from pteron.gpu.device import Device
from pteron.ops import Weight
from pteron.plan import Executable, Plan

_MEMORY = Path("/proc/meminfo")


def check_room(device: Device, executable: Executable, plan: Plan | None) -> None:
    """Raise a DeviceError if a buffer exceeds a limit of the device, and OutOfMemory if the buffers of a
    software adapter exceed the machine's free memory. WebGPU does not report the free memory of a GPU."""
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
    left = _bytes_left() if device.target.is_cpu else None
    needed = {kind: sum(each) for kind, each in sizes.items() if each}
    if left is not None and sum(needed.values()) > left:
        listed = ", ".join(f"{kind} {size:,}" for kind, size in needed.items())
        raise OutOfMemory(
            f"{executable.name} needs {sum(needed.values()):,} bytes on {device.adapter} ({listed}); "
            f"this machine has {left:,} free"
        )


def check_room_for_states(device: Device, executable: Executable) -> None:
    """`check_room` for the states of one more sequence."""
    left = _bytes_left() if device.target.is_cpu else None
    needed = sum(state.bytes for state in executable.states.values())
    if left is not None and needed > left:
        raise OutOfMemory(
            f"{executable.name} needs {needed:,} bytes on {device.adapter} for another sequence; "
            f"this machine has {left:,} free"
        )


def _bytes_left() -> int | None:
    """Free memory of this machine; None if it is unknown."""
    if not _MEMORY.exists():
        return None
    fields = dict(line.split(":", 1) for line in _MEMORY.read_text("utf-8").splitlines())
    kilobytes = fields.get("MemAvailable", "").split()
    return int(kilobytes[0]) << 10 if kilobytes else None
