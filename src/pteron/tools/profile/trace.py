"""A profile as a trace that Perfetto and Chrome's tracing page show: a track of the host, one of the GPU.

Every stage and every launch stands there once, with its time, one behind the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pteron.tools.profile.report import LaunchTime, Profile

_HOST, _GPU = 1, 2  # threads of the one process in the trace


def trace_text(profile: Profile) -> str:
    """The trace, as JSON."""
    return json.dumps({"traceEvents": list(_events(profile)), "displayTimeUnit": "ns"})


def _events(profile: Profile) -> Iterator[dict[str, Any]]:
    yield _name("process_name", 0, f"{profile.program}, {profile.what}")
    yield _name("thread_name", _HOST, "host")
    yield _name("thread_name", _GPU, profile.device)
    begin, begun = 0.0, 0.0
    for stage in profile.stages:
        if not stage.is_once:
            yield _event(stage.name, _HOST, begin, stage.seconds, {})
            begin += stage.seconds
            if stage.name == "submit":
                begun = begin  # the GPU has work from here on
    for launch in profile.launches:
        yield _event(launch.operator, _GPU, begun, launch.seconds, _arguments(launch))
        begun += launch.seconds


def _event(name: str, thread: int, begin: float, seconds: float, arguments: dict[str, Any]) -> dict[str, Any]:
    """Times are in microseconds."""
    return {
        "name": name,
        "ph": "X",
        "pid": 1,
        "tid": thread,
        "ts": begin * 1e6,
        "dur": seconds * 1e6,
        "args": arguments,
    }


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}


def _arguments(launch: LaunchTime) -> dict[str, Any]:
    return {
        "kernel": launch.kernel,
        "family": launch.family,
        "nodes": [] if launch.delegate is None else list(launch.nodes),
        "layer": launch.layer,
        "workgroups": list(launch.groups),
        "bytes": launch.bytes,
        "operations": launch.operations,
    }
