"""A delegate on a device: its weights, its arena, its plans. Sequences of calls bring their own states.

`bring` is the door: it brings inputs into place for the plan of their shapes, to be replayed over the states
of a sequence. Method calls (`run`), launches that further commands follow, and steps that repeat (repeat.py)
all go through it; only what lies on the GPU already (`bound`) does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pteron.dtypes import DType, Storage
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
    Slots,
    States,
    Weights,
    check_room,
    check_room_for_states,
    submit,
    submit_early,
)
from pteron.graph import Graph
from pteron.host.tensors import View
from pteron.ops import Target
from pteron.ops.operand import State, Weight
from pteron.passes import prepare
from pteron.plan import Compiled, Executable, Plan, PlanBuffer, SymbolPort, TensorPort
from pteron.runtime.outputs import Output, Outputs, Wanted, taken
from pteron.runtime.plan_cache import PlanCache
from pteron.runtime.prerecord import Call, PrerecordedCalls, RepeatableCall
from pteron.runtime.staging import Input, InputUpload, live_shapes, live_values, stage, upload

Then: TypeAlias = Callable[[Outputs], Sequence[Command]]
# A call that is recorded ahead holds a staging buffer. One of more bytes than this takes longer to read than
# most calls to record.
_AHEAD_BYTES = 1 << 22


@dataclass(slots=True)
class Counters:
    """What a method has done so far. A decode loop plans once; a static graph never writes a parameter."""

    calls: int = 0
    plans: int = 0
    parameter_writes: int = 0
    dispatches: int = 0
    bytes_uploaded: int = 0
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class Encoded:
    """Commands that run a graph, and where its outputs will lie."""

    commands: list[Command]
    outputs: Outputs


class Session:
    """Runs one executable, at any live shapes that it has plans for or that can be planned."""

    def __init__(
        self, executable: Executable, device: Device, counters: Counters, compiled: Compiled | None = None
    ) -> None:
        self.executable = executable
        self.device = device
        self.counters = counters
        self.is_closed = False
        self.slots: Slots | None = None  # that sequences have their states in, as long as there are any
        executable.target.check_runs_on(device.target)
        at_most = compiled.plan_at_maximum() if compiled else None
        if compiled is None:  # its plans are of whoever wrote them
            executable.check_runs_on(device.target)
        device.check_open()  # where it is about to be, waits for it
        with device.lock:
            check_room(device, executable, at_most[0] if at_most else None)
            self._weights = Weights(device, executable.name)
            self._arena = Arena(device, executable)
            self._plans = PlanCache(executable, compiled, device, self._arena, self._weights)
            try:
                if compiled and at_most:  # compiles the kernels that most calls will need
                    self._plans.keep(compiled.shapes_max, *at_most)
                    counters.plans += 1
                self._run_once()
            except BaseException:
                self.close()
                raise

    @classmethod
    def of(
        cls, graph: Graph, device: Device, counters: Counters | None = None, target: Target | None = None
    ) -> Session:
        """A session of a graph. With another target than the device's own, kernels that are meant for other
        devices run here."""
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

    def launch(
        self,
        inputs: Sequence[Input],
        states: States,
        then: Then | None = None,
        timer: PassTimer | None = None,
    ) -> int:
        """Run the graph, then the commands that `then` makes from where its outputs lie; nothing is waited
        for. Returns the submission's number, by which it can be waited for."""
        with self.device.lock:
            encoded = self.encode(inputs, states)
            after = then(encoded.outputs) if then else ()
            commands = [*encoded.commands, *after]
            return submit(self.device, commands, timer) if timer else submit_early(self.device, commands)

    def encode(self, inputs: Sequence[Input], states: States) -> Encoded:
        """The commands that run the graph. They are to be submitted before the session is encoded again, so
        whoever calls this holds the device's lock until then."""
        recording, numbers, copies = self.bring(inputs, states)
        outputs = self.outputs(recording, numbers, states)
        return Encoded([*copies, recording.replay(states)], outputs)

    def bring(
        self, inputs: Sequence[Input], states: States, ahead: PrerecordedCalls | None = None
    ) -> tuple[Recording, list[int], list[Copy]]:
        """Bring inputs and live parameters into place: the recording for them, the numbers of its live terms,
        and the copies of what was on the GPU, which are to be made before it is replayed. Whoever calls this
        holds the device's lock until that is submitted."""
        if self.is_closed or not self.device.is_open:
            self.check_open()
        states.check_open()
        landed = ahead.land(self.device, inputs) if ahead else None
        if landed:
            self.counters.bytes_uploaded += landed[1]
            self.counters.dispatches += landed[0].dispatches
            return landed[0], [], []
        recording, numbers = self.ready(inputs)
        staged = stage(self.executable, inputs, recording.plan.indices)
        self.counters.parameter_writes += recording.refresh(numbers)
        needed = [pair for pair in staged if self._is_seen(pair[0], recording)]
        copies, sent = upload(self.device, needed, lambda port: self.buffer(port, states))
        self.counters.bytes_uploaded += sent
        self.counters.dispatches += recording.dispatches
        return recording, numbers, copies

    def outputs(self, recording: Recording, numbers: Sequence[int], states: States) -> list[View | int]:
        """Where the outputs of a recording lie."""
        plan = recording.plan
        return [
            plan.integers[port.id].evaluate(numbers)
            if isinstance(port, SymbolPort)
            else View(
                self.buffer(port, states),
                0,
                plan.shapes[port.id],
                port.dtype,
                port.storage,
                self._peaks(recording, port, states),
            )
            for port in self.executable.outputs
        ]

    def buffer(self, port: TensorPort, states: States) -> Buffer:
        """Where an input or output lies."""
        if isinstance(port.buffer, State):
            return states[port.buffer]
        return self._weights[port.buffer] if isinstance(port.buffer, Weight) else self._arena[port.buffer]

    def bound(self, inputs: Sequence[Input], states: States, places: Mapping[PlanBuffer, Buffer]) -> Replay:
        """What runs the graph over tensors where they lie on the GPU, and over other memory for some states.
        It is to be submitted before the session is encoded again."""
        self.check_open()
        states.check_open()
        recording, numbers = self.ready(inputs)
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
        ahead: PrerecordedCalls | None = None,
    ) -> list[Output]:
        """Run the graph; nothing is waited for. An output that nobody wants is None. `ahead` is where the
        states' next call is recorded. The states are unsettled then: whoever called settles them once all
        has gone well."""
        with self.device.lock:
            recording, numbers, copies = self.bring(inputs, states, ahead)
            call, is_repeated = ahead.take(recording, wanted) if ahead and not copies else (None, False)
            if call is None:
                views = self.outputs(recording, numbers, states)
                call = self._call(copies, recording.replay(states), views, wanted)
                if ahead and is_repeated and call.bytes_read <= _AHEAD_BYTES and self._can_repeat(wanted):
                    again = RepeatableCall(
                        self.device, recording.replay(states), zip(views, wanted, strict=True)
                    )
                    ahead.expect(again, self._landing(inputs, recording, states))
            states.unsettle()
            call.commands.submit()
            self.counters.bytes_read += call.bytes_read
            if ahead and is_repeated:
                ahead.record()
            return call.outputs

    def recorded(self, inputs: Sequence[Input], states: States) -> tuple[Plan, Replay]:
        """The plan for such inputs and its replay, its live parameters set to theirs."""
        with self.device.lock:
            recording, numbers = self.ready(inputs)
            recording.refresh(numbers)
            return recording.plan, recording.replay(states)

    def snapshot(self) -> Executable:
        """The executable with the plans made so far, as `plan.archive` writes it."""
        with self.device.lock:
            return replace(self.executable, plans=self._plans.plans())

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes in weights, activations and scratch memory."""
        return {"weights": self._weights.bytes, **self._arena.bytes_by_kind}

    def check_open(self) -> None:
        if self.is_closed:
            raise DeviceError(f"{self.executable.name}: the program is closed")
        self.device.check_open()

    def close(self) -> None:
        """Free all but the states, which belong to their sequences."""
        with self.device.lock:
            self.is_closed = True
            self._plans.close()
            self._arena.close()
            self._weights.close()

    def _peaks(self, recording: Recording, port: TensorPort, states: States) -> View | None:
        """The peaks of an output's blocks, where the recording leaves them in a state that has room for them:
        a file may say otherwise."""
        place, blocks = recording.peaks(port.buffer) or (None, 0)
        if not isinstance(place, State):
            return None
        found = View(states[place], 0, (blocks, 4), DType.I32, Storage.I32)
        return found if 0 < found.nbytes <= found.buffer.size else None

    def _run_once(self) -> None:
        """Run the calls that depend on constants alone."""
        once = self.executable.once
        if once.launches:
            recording = Recording(self.device, once, self._arena, self._weights, [])
            submit(self.device, [recording.replay()])
            recording.close()

    def _landing(self, inputs: Sequence[Input], recording: Recording, states: States) -> InputUpload | None:
        """Where inputs are that bring neither live integers nor indices, of which more has to be known."""
        ports = [port for port in self.executable.inputs if isinstance(port, TensorPort)]
        if self.executable.sources or recording.plan.indices or len(ports) < len(self.executable.inputs):
            return None
        places = [self.buffer(port, states) if self._is_seen(port, recording) else None for port in ports]
        return InputUpload(self.executable, live_shapes(self.executable, inputs), places)

    def _call(
        self, copies: Sequence[Copy], replay: Replay, views: Outputs, wanted: Sequence[Wanted | None]
    ) -> Call:
        """A run with its inputs in place: the copies, the plan, and what brings the outputs away."""
        outputs, after, read = taken(self.device, self.executable.name, views, wanted)
        return Call(Commands(self.device, [*copies, replay, *after]), outputs, read)

    def _can_repeat(self, wanted: Sequence[Wanted | None]) -> bool:
        """Whether calls give the host nothing but what one staging buffer holds: live integers are of their
        call, and what stays on the GPU gets memory of its own."""
        tensors = all(isinstance(port, TensorPort) for port in self.executable.outputs)
        return tensors and not any(want and want.on_gpu for want in wanted)

    def _is_seen(self, port: TensorPort, recording: Recording) -> bool:
        """Whether anybody looks at an input's memory: where only live integers come from it, nobody does."""
        return recording.touches(port.buffer) or any(
            isinstance(output, TensorPort) and output.buffer == port.buffer
            for output in self.executable.outputs
        )

    def ready(self, inputs: Sequence[Input]) -> tuple[Recording, list[int]]:
        """The recording for the inputs' shapes, and the numbers of its live terms."""
        made = self._plans.made
        found = self._plans.find(live_shapes(self.executable, inputs), live_values(self.executable, inputs))
        self.counters.plans += self._plans.made - made
        return found
