"""The only importer of wgpu: devices, buffers, pipelines, and the replay of plans."""

from pteron.gpu.adapters import AdapterInfo, adapters
from pteron.gpu.buffers import Memory
from pteron.gpu.device import Buffer, Device
from pteron.gpu.readback import Readback
from pteron.gpu.recording import Recording
from pteron.gpu.submit import Command, Copy, submit
from pteron.gpu.timing import PassTimer

__all__ = [
    "AdapterInfo",
    "Buffer",
    "Command",
    "Copy",
    "Device",
    "Memory",
    "PassTimer",
    "Readback",
    "Recording",
    "adapters",
    "submit",
]
