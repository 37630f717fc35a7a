"""A profile -> a page for a browser, or a trace for Perfetto and Chrome's tracing page.

The trace has a track for the host and one for the GPU, with every stage and launch once, one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pteron.tools.profile.report import TIMINGS, Profile, notes
from pteron.tools.text import build_page, json_text

_HOST, _GPU = 1, 2  # threads of the one process in the trace


def page_text(profile: Profile) -> str:
    texts = {"timing_text": TIMINGS[profile.timing], "notes": list(notes(profile))}
    data = json.loads(json_text(profile)) | texts
    title = f"{profile.program}, {profile.what} · Pteron"
    return build_page("pteron.tools.profile", title, data)


def trace_text(profile: Profile) -> str:
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
                begun = begin  # the GPU starts here
    for launch in profile.launches:
        nodes = [] if launch.delegate is None else list(launch.nodes)
        arguments: dict[str, Any] = {"kernel": launch.kernel, "family": launch.family, "nodes": nodes}
        arguments |= {"layer": launch.layer, "workgroups": list(launch.groups)}
        arguments |= {"bytes": launch.bytes, "operations": launch.operations}
        yield _event(launch.operator, _GPU, begun, launch.seconds, arguments)
        begun += launch.seconds


def _event(name: str, thread: int, begin: float, seconds: float, arguments: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": begin * 1e6, "dur": seconds * 1e6}  # microseconds
    return {"name": name, "ph": "X", "pid": 1, "tid": thread, **times, "args": arguments}


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}
