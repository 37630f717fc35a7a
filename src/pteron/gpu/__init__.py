"""The only importer of wgpu: devices, buffers, pipelines, and the replay of plans."""

from pteron.gpu.adapters import AdapterInfo, adapters
from pteron.gpu.device import Buffer, Device
from pteron.gpu.memory import Arena, States, Weights
from pteron.gpu.readback import Readback
from pteron.gpu.recording import Recording, Replay
from pteron.gpu.submit import Command, Copy, submit
from pteron.gpu.timing import PassTimer

__all__ = [
    "AdapterInfo",
    "Arena",
    "Buffer",
    "Command",
    "Copy",
    "Device",
    "PassTimer",
    "Readback",
    "Recording",
    "Replay",
    "States",
    "Weights",
    "adapters",
    "submit",
]
