"""A delegate on a device: its weights, arena and plans. Each sequence of calls has its own states.

`stage_inputs` uploads the inputs and finds the plan for their shapes, which is then replayed over a
sequence's states. Method calls (`run`), calls with further commands (`submit`) and multi-step submissions
(multi_step.py) use it. `bind_inputs` binds a plan to inputs that are on the GPU already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pteron.errors import DeviceError
from pteron.gpu import (
    Arena,
    Buffer,
    Command,
    Commands,
    Copy,
    Device,
    PassTimer,
    Recording,
    Replay,
    SequenceSlots,
    States,
    Weights,
    check_room,
    check_room_for_states,
    submit,
)
from pteron.graph import Graph
from pteron.host.tensors import HostResult, View
from pteron.ops import Target
from pteron.ops.operand import State, Weight
from pteron.passes import prepare
from pteron.plan import Compiled, Executable, Plan, PlanBuffer, SymbolPort, TensorPort
from pteron.runtime.outputs import Output, Outputs, Wanted, allocate_outputs
from pteron.runtime.plan_cache import PlanCache
from pteron.runtime.prerecord import PreparedCall, PrerecordedCalls, RepeatableCall
from pteron.runtime.staging import Input, InputUpload, live_shapes, live_values, stage, upload

_log = logging.getLogger(__name__)
OutputCheck: TypeAlias = Callable[[Sequence[Output]], None]  # gets outputs that are not computed yet
OutputCommands: TypeAlias = Callable[[Outputs], Sequence[Command]]  # commands that use a call's outputs
# A call is prerecorded only if the host reads at most this many bytes: such a call holds a staging buffer,
# and reading more takes longer than recording most calls.
_PRERECORD_BYTES_MAX = 1 << 22
# A plan is bound ahead in pieces, so that calls wait for this long at most. A thread that takes a lock again
# without a pause leaves it to no other.
_BIND_SECONDS, _PAUSE_SECONDS = 0.001, 0.0001
_KERNELS_LOGGED = 5  # a call that compiles as many is logged: it took long


@dataclass(slots=True)
class Counters:
    """Counts since a method was loaded. A decode loop plans once; a static graph never writes a parameter.
    Kernels are those compiled: the device did not have them."""

    calls: int = 0
    plans: int = 0
    kernels: int = 0
    parameter_writes: int = 0
    dispatches: int = 0
    bytes_uploaded: int = 0
    bytes_read: int = 0


class Session:
    """Runs one executable, at live shapes that it has a plan for or that `compiled` can plan."""

    def __init__(
        self, executable: Executable, device: Device, counters: Counters, compiled: Compiled | None = None
    ) -> None:
        self.executable = executable
        self.device = device
        self.counters = counters
        self.is_closed = False
        self.slots: SequenceSlots | None = None  # of sequences that share batch memory
        executable.target.check_runs_on(device.target)
        at_most = compiled.plan_at_maximum() if compiled else None
        device.check_open()  # waits until it is open
        with device.lock:
            before = device.compiled
            check_room(device, executable, at_most[0] if at_most else None)
            self._weights = Weights(device, executable.name)
            self._arena = Arena(device, executable)
            self._plans = PlanCache(executable, compiled, device, self._arena, self._weights)
            try:
                if compiled and at_most:  # compiles the kernels that most calls need
                    self._plans.keep(compiled.shapes_max, *at_most)
                    counters.plans += 1
                self._run_once()
                counters.kernels += device.compiled - before
            except BaseException:
                self.close()
                raise

    @classmethod
    def of(
        cls, graph: Graph, device: Device, counters: Counters | None = None, target: Target | None = None
    ) -> Session:
        """A session of a graph; `target` selects kernels for another kind of device."""
        compiled = Compiled(prepare(graph), target or device.target)
        return cls(compiled.executable, device, counters or Counters(), compiled)

    def states(self) -> States:
        """The states of a new sequence of calls."""
        with self.device.lock:
            self.check_open()
            if self.slots and (lent := self.slots.take()):
                return lent
            check_room_for_states(self.device, self.executable)
            return States(self.device, self.executable)

    def make_plan(self, inputs: Sequence[Input], *, plain: bool = False) -> Plan:
        """The plan for a call, made and compiled if there is none yet. Other threads may use the session
        meanwhile: the device's lock is only held to record the plan, and to bind it."""
        shapes, values = live_shapes(self.executable, inputs), live_values(self.executable, inputs)
        with self.device.lock:
            self.check_open()
            found, key, everything = self._plans.lookup(shapes, values, plain=plain)
        while found is None:
            made = self._plans.make(shapes, values, key, everything)
            modules = [launch.module for launch in made.plan.launches]
            new = self.device.count_new(modules)
            kernels = self.device.pipelines(modules)
            with self.device.lock:
                self.check_open()
                self.counters.kernels += new
                found, key, everything = self._plans.lookup(shapes, values, plain=plain)
                is_same = (key, everything) == (made.key, made.values)  # no further dim became live
                if found is None and is_same:
                    found = self._plans.keep(*made)
                    self.counters.plans += 1
            del kernels  # the recording has them
        self._bind(found[0])
        return found[0].plan

    def _bind(self, recording: Recording) -> None:
        """Make the bind groups that sequences share. Other threads take the device's lock in between."""
        is_bound = False
        while not is_bound:
            with self.device.lock:
                self.check_open()
                is_bound = recording.bind_shared(_BIND_SECONDS)
            time.sleep(_PAUSE_SECONDS)

    def submit(
        self,
        inputs: Sequence[Input],
        states: States,
        then: OutputCommands | None = None,
        timer: PassTimer | None = None,
        *,
        states_only: bool = False,
    ) -> int:
        """Run the graph, then the commands that `then` makes from its outputs, without waiting. Returns the
        submission's number, which can be waited for. With `states_only`, outputs are not computed."""
        with self.device.lock:
            recording, numbers, copies = self.stage_inputs(inputs, states)
            after = then(self.outputs(recording, numbers, states)) if then else ()
            replay = recording.replay_states(states) if states_only else recording.replay(states)
            commands = [*copies, replay, *after]
            return submit(self.device, commands, timer, in_parts=timer is None)

    def encode(self, inputs: Sequence[Input], states: States) -> list[Command]:
        """The commands that run the graph. The caller holds the device's lock until they are submitted."""
        recording, _, copies = self.stage_inputs(inputs, states)
        return [*copies, recording.replay(states)]

    def stage_inputs(
        self, inputs: Sequence[Input], states: States, prerecorded: PrerecordedCalls | None = None
    ) -> tuple[Recording, list[int], list[Copy]]:
        """Upload inputs and live parameters. Returns the recording for them, the numbers of its live terms,
        and the copies of inputs that are on the GPU, which must be submitted before the replay. The caller
        holds the device's lock until the replay is submitted."""
        if self.is_closed or not self.device.is_open:
            self.check_open()
        states.check_open()
        uploaded = prerecorded.upload(self.device, inputs) if prerecorded else None
        if uploaded:
            self.counters.bytes_uploaded += uploaded[1]
            self.counters.dispatches += uploaded[0].dispatches
            return uploaded[0], list(uploaded[0].numbers), []
        recording, numbers = self.find_recording(inputs)
        staged = stage(self.executable, inputs, recording.plan.indices)
        self.counters.parameter_writes += recording.refresh(numbers)
        needed = [pair for pair in staged if self._is_used(pair[0], recording)]
        copies, sent = upload(self.device, needed, lambda port: self.buffer(port, states))
        self.counters.bytes_uploaded += sent
        self.counters.dispatches += recording.dispatches
        return recording, numbers, copies

    def outputs(self, recording: Recording, numbers: Sequence[int], states: States) -> list[View | int]:
        """The outputs of a recording: views of buffers, and live integers."""
        plan = recording.plan
        return [
            plan.integers[port.id].evaluate(numbers)
            if isinstance(port, SymbolPort)
            else View(self.buffer(port, states), 0, plan.shape(port.id, numbers), port.dtype, port.storage)
            for port in self.executable.outputs
        ]

    def buffer(self, port: TensorPort, states: States) -> Buffer:
        """The buffer of an input or output."""
        if isinstance(port.buffer, State):
            return states[port.buffer]
        return self._weights[port.buffer] if isinstance(port.buffer, Weight) else self._arena[port.buffer]

    def bind_inputs(
        self,
        inputs: Sequence[Input],
        states: States,
        places: Mapping[PlanBuffer, Buffer],
        found: tuple[Recording, list[int]] | None = None,
    ) -> Replay:
        """The replay of the graph bound directly to inputs on the GPU, with `places` instead of some states.
        Submit it before the session encodes another call. `found` is the plain recording for the inputs."""
        self.check_open()
        states.check_open()
        recording, numbers = found or self.find_recording(inputs, plain=True)
        given: dict[PlanBuffer, Buffer] = {}
        for port, view in stage(self.executable, inputs, recording.plan.indices):
            assert isinstance(view, View)
            assert view.offset == 0
            assert recording.only_reads(port.buffer)
            given[port.buffer] = view.buffer
        self.counters.parameter_writes += recording.refresh(numbers)
        return recording.replay(states, {**given, **places})

    def run(
        self,
        inputs: Sequence[Input],
        wanted: Sequence[Wanted | None],
        states: States,
        prerecorded: PrerecordedCalls | None = None,
        check: OutputCheck | None = None,
    ) -> list[Output]:
        """Run the graph without waiting. The result has None for outputs that are not wanted. `prerecorded`
        is of this sequence. If `check` raises an error, nothing is submitted. The caller marks the states as
        valid once the call has succeeded."""
        with self.device.lock:
            recording, numbers, copies = self.stage_inputs(inputs, states, prerecorded)
            call, is_repeated = (
                prerecorded.take(recording, wanted) if prerecorded and not copies else (None, False)
            )
            if call is None:
                views = self.outputs(recording, numbers, states)
                outputs, after, read = allocate_outputs(self.device, self.executable.name, views, wanted)
                commands = Commands(
                    self.device,
                    [*copies, recording.replay(states), *after],
                    in_parts=self.device.library.encodes_at_submission,
                )
                call = PreparedCall(commands, outputs, read)
                if (
                    prerecorded
                    and is_repeated
                    and call.bytes_read <= _PRERECORD_BYTES_MAX
                    and self._can_repeat(wanted)
                ):
                    pairs = zip(views, wanted, strict=True)
                    repeatable = RepeatableCall(self.device, recording.replay(states), pairs)
                    prerecorded.expect(repeatable, self._input_upload(inputs, recording, states))
            if check is not None:
                check(call.outputs)
            states.invalidate()
            submission = call.commands.submit()
            for output in call.outputs:
                if isinstance(output, HostResult):
                    output.submission = submission
            self.counters.bytes_read += call.bytes_read
            if prerecorded and is_repeated:
                prerecorded.record()
            return call.outputs

    def recorded(self, inputs: Sequence[Input], states: States) -> tuple[Plan, Replay]:
        """The plan for these inputs alone and its replay, with its live parameters set."""
        with self.device.lock:
            recording, numbers = self.find_recording(inputs, plain=True)
            recording.refresh(numbers)
            return recording.plan, recording.replay(states)

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes in weights, activations and scratch memory."""
        return {"weights": self._weights.bytes, **self._arena.bytes_by_kind}

    def check_open(self) -> None:
        if self.is_closed:
            raise DeviceError(f"{self.executable.name}: the program is closed")
        self.device.check_open()

    def close(self) -> None:
        """Free everything except the states, which belong to sequences."""
        with self.device.lock:
            self.is_closed = True
            self._plans.close()
            self.device.release_kernels()
            self._arena.close()
            self._weights.close()

    def _run_once(self) -> None:
        """Run the calls of the graph that depend only on constants."""
        once = self.executable.once
        if once.launches:
            recording = Recording(self.device, once, self._arena, self._weights, [])
            submit(self.device, [recording.replay()])
            recording.close()

    def _input_upload(
        self, inputs: Sequence[Input], recording: Recording, states: States
    ) -> InputUpload | None:
        """An InputUpload for inputs of the same shapes and types; None if every call must read live integers
        or check indices."""
        ports = [port for port in self.executable.inputs if isinstance(port, TensorPort)]
        if self.executable.sources or recording.plan.indices or len(ports) < len(self.executable.inputs):
            return None
        places = [self.buffer(port, states) if self._is_used(port, recording) else None for port in ports]
        return InputUpload(self.executable, live_shapes(self.executable, inputs), places)

    def _can_repeat(self, wanted: Sequence[Wanted | None]) -> bool:
        """Whether a call can be repeated: all outputs are tensors for the host. Live integers differ from
        call to call, and an output on the GPU needs a new buffer."""
        tensors = all(isinstance(port, TensorPort) for port in self.executable.outputs)
        return tensors and not any(want and want.on_gpu for want in wanted)

    def _is_used(self, port: TensorPort, recording: Recording) -> bool:
        """Whether an input's buffer is read; it is not if the plan only takes live integers from it."""
        return recording.touches(port.buffer) or any(
            isinstance(output, TensorPort) and output.buffer == port.buffer
            for output in self.executable.outputs
        )

    def find_recording(self, inputs: Sequence[Input], *, plain: bool = False) -> tuple[Recording, list[int]]:
        """The recording for the inputs' shapes, and the numbers of its live terms. A `plain` one is for these
        shapes alone: its replays may be kept, or submitted with those of other shapes."""
        made, executable = self._plans.made, self.executable
        shapes, values = live_shapes(executable, inputs), live_values(executable, inputs)
        compiled, started = self.device.compiled, time.perf_counter()
        found = self._plans.find(shapes, values, plain=plain)
        if self._plans.made > made:
            self.counters.plans += self._plans.made - made
            kernels = self.device.compiled - compiled
            self.counters.kernels += kernels
            if kernels >= _KERNELS_LOGGED:
                given = ", ".join(str(list(shape)) for shape in shapes if shape is not None)
                _log.info(
                    "%s: compiled %d kernels in %.1f s, for inputs of %s; Method.prepare does it ahead",
                    executable.name, kernels, time.perf_counter() - started, given,
                )  # fmt: skip
        return found
