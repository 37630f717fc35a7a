"""The memory, files and threads of an idle process over time, and whether they grow."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from pteron import Device

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sample:
    """The resources of the process after a number of rounds."""

    rounds: int
    resident: int  # bytes of the process in memory
    buffers: int  # bytes of GPU buffers that are alive
    uploads: int  # weights that a device keeps
    files: int  # that are open
    threads: int

    @classmethod
    def take(cls, rounds: int, device: Device) -> Sample:
        gc.collect()
        device.wait()
        with open("/proc/self/statm", encoding="ascii") as statm:
            resident = int(statm.read().split()[1]) * _PAGE
        files = len(os.listdir("/proc/self/fd"))
        return cls(
            rounds, resident, device.buffer_bytes, len(device.uploads), files, threading.active_count()
        )


@dataclass(frozen=True)
class Growth:
    """The trend of a figure over the rounds (Theil-Sen: the median slope of all pairs of samples) and its
    range."""

    name: str
    per_round: float
    low: int
    high: int
    allowed: float  # a round

    @property
    def is_flat(self) -> bool:
        return self.per_round <= self.allowed

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else "GROWS"
        return (
            f"{self.name:10} {self.low:>14,} to {self.high:>14,}  {self.per_round:+10.2f} a round  {verdict}"
        )


def growths(samples: Sequence[Sample], bytes_per_round: float) -> list[Growth]:
    """The growth of every figure, without the first third of the samples: first kernels and allocations."""
    settled = samples[len(samples) // 3 :]
    allowed = {"resident": bytes_per_round, "buffers": 0.0, "uploads": 0.0, "files": 0.0, "threads": 0.0}
    return [
        Growth(name, slope([(s.rounds, getattr(s, name)) for s in settled]), *_range(settled, name), limit)
        for name, limit in allowed.items()
    ]


def _range(samples: Sequence[Sample], name: str) -> tuple[int, int]:
    figures = [getattr(sample, name) for sample in samples]
    return min(figures), max(figures)


def slope(points: Sequence[tuple[int, int]]) -> float:
    """The median of the slopes between all pairs of points."""
    return median((y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in combinations(points, 2) if x1 != x0)
