"""GPU time of a plan's launches by kernel, operator and grid."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.gpu import Device, PassTimer, Replay, submit
from pteron.gpu.commands import BoundLaunch
from pteron.plan import Plan

LAUNCHES = 400  # of a kind in one pass, at least: a single one is too short to be timed
KINDS_MAX = 24  # that are printed


def by_kernel(device: Device, plan: Plan, replay: Replay, title: str) -> None:
    """Print it: the launches of each kind alone, repeated in one pass, the best of four. In their order they
    take longer: a processor has to fetch other code for each."""
    kinds: dict[str, list[BoundLaunch]] = {}
    for launch, step in zip(plan.launches, replay.launches, strict=True):
        kinds.setdefault(f"{launch.module.kernel.name} {launch.operator} {launch.groups}", []).append(step)
    rows = [(gpu_seconds(device, some, replay), len(some), kind) for kind, some in kinds.items()]
    total = sum(row[0] for row in rows)
    whole = gpu_seconds(device, replay.launches, replay)
    print(f"{title}: {whole * 1e3:.3f} ms in their order, {total * 1e3:.3f} each kind alone")
    for seconds, count, kind in sorted(rows, reverse=True)[:KINDS_MAX]:
        each = seconds / count
        print(f"  {seconds * 1e6:9.1f} µs  {seconds / total:5.1%}  {count:4} x {each * 1e6:8.2f} µs  {kind}")


def gpu_seconds(device: Device, steps: Sequence[BoundLaunch], replay: Replay) -> float:
    """GPU time of some launches in their order: the best of four passes that repeat them."""
    repeats = -(-LAUNCHES // len(steps))
    times = []
    for _ in range(4):
        timer = PassTimer(device, 1)
        submit(device, [Replay(list(steps) * repeats, replay.kept)], timer)
        times.append(timer.seconds()[0] / repeats)
    return min(times)
