"""Devices, buffers, pipelines and the replay of plans; the only package that imports WebGPU libraries."""

from pteron.gpu.adapters import AdapterInfo, adapters
from pteron.gpu.batch_slots import SLOT_ALIGNMENT, SequenceSlots, SlotStates
from pteron.gpu.buffers import Buffer
from pteron.gpu.commands import Command, Copy, Replay
from pteron.gpu.device import Device, KernelKey
from pteron.gpu.memory import Arena, BorrowedStates, States, Weights, check_room, check_room_for_states
from pteron.gpu.readback import Readback
from pteron.gpu.recording import Recording, WordIncrements
from pteron.gpu.submit import Commands, record, submit
from pteron.gpu.timing import LaunchTimer, PassTimer

__all__ = [
    "SLOT_ALIGNMENT",
    "AdapterInfo",
    "Arena",
    "BorrowedStates",
    "Buffer",
    "Command",
    "Commands",
    "Copy",
    "Device",
    "KernelKey",
    "LaunchTimer",
    "PassTimer",
    "Readback",
    "Recording",
    "Replay",
    "SequenceSlots",
    "SlotStates",
    "States",
    "Weights",
    "WordIncrements",
    "adapters",
    "check_room",
    "check_room_for_states",
    "record",
    "submit",
]
