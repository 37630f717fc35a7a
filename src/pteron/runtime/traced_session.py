"""A session that measures every launch of its calls."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pteron.gpu import Device, LaunchTimer, Replay, States, submit
from pteron.plan import Compiled, Executable
from pteron.runtime.outputs import Output, Wanted, allocate_outputs
from pteron.runtime.prerecord import PrerecordedCalls
from pteron.runtime.session import Counters, OutputCheck, Session
from pteron.runtime.staging import Input
from pteron.runtime.trace import Trace


class TracedSession(Session):
    """Adds the launches of each call to a trace: by the GPU's timestamps, or without these by the host's
    clock, launch by launch."""

    def __init__(
        self, executable: Executable, device: Device, counters: Counters, compiled: Compiled, trace: Trace
    ) -> None:
        super().__init__(executable, device, counters, compiled)
        self._trace = trace

    def run(
        self,
        inputs: Sequence[Input],
        wanted: Sequence[Wanted | None],
        states: States,
        prerecorded: PrerecordedCalls | None = None,
        check: OutputCheck | None = None,
    ) -> list[Output]:
        with self.device.lock:
            recording, numbers, copies = self.stage_inputs(inputs, states)
            views = self.outputs(recording, numbers, states)
            outputs, after, read = allocate_outputs(self.device, self.executable.name, views, wanted)
            if check is not None:
                check(outputs)
            states.invalidate()
            submit(self.device, copies)
            self.device.wait()  # for the uploads: they are no launch's time
            started = time.perf_counter_ns()
            seconds = self._seconds(recording.replay(states))
            submit(self.device, after)
            self.counters.bytes_read += read
            self._trace.add_launches(started, recording.plan.launches, seconds)
            return outputs

    def _seconds(self, replay: Replay) -> list[float]:
        if not replay.launches:
            return []
        if "timestamp-query" in self.device.adapter.features:
            return LaunchTimer(self.device, len(replay.launches)).run(replay)
        found = []
        for launch in replay.launches:
            started = time.perf_counter()
            submit(self.device, [Replay([launch], replay.kept)])
            self.device.wait()
            found.append(time.perf_counter() - started)
        return found
