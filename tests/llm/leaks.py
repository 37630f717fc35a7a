"""Memory of the host and of a device, for tests that look for leaks."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

from pteron import Device
from pteron.gpu import readback

GROWTH_MAX = 3 << 20  # bytes of host memory: what the allocator may keep
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def host_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held(device: Device) -> dict[str, int]:
    """Counts of what the device and the package hold."""
    gc.collect()
    return {
        "buffers": len(device._buffers),
        "bytes": device.buffer_bytes,
        "uploads": len(device.uploads),
        "users": sum(len(upload.users) for upload in device.uploads.values()),
        "pipelines": len(device._pipelines),
        "maps": len(readback._pending) + len(readback._finished),
    }
