"""Several steps of a graph in one submission: the host writes nothing between steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from pteron.errors import PteronError
from pteron.gpu import Buffer, Command, PassTimer, Recording, States, WordIncrements, submit
from pteron.plan import TensorPort
from pteron.runtime.outputs import Outputs
from pteron.runtime.session import Session
from pteron.runtime.staging import Input, growth_per_step, inputs_after, steps_within

# (input buffers, outputs, increments) of a step -> the commands to run after it, which also add the
# increments. None: a separate dispatch adds them.
StepCommands: TypeAlias = Callable[
    [Sequence[Buffer | None], Outputs, WordIncrements | None], Sequence[Command]
]


def repeat(
    session: Session,
    inputs: Sequence[Input],
    states: States,
    growth: Mapping[int, int],
    most: int,
    commands_after: StepCommands,
    then: Sequence[Command],
    timer: PassTimer | None = None,
) -> tuple[int, int]:
    """Run a session's graph up to `most` times in one submission, then the commands of `then`.

    `growth` maps an input to the increment of its elements at every step. The commands of `commands_after`
    write all other inputs. When a plan is no longer valid, the next plan continues in the same submission.
    There are fewer than `most` steps if no plan is valid, or if only the host can update the parameters.

    Returns the submission's number and the number of steps.
    """
    device, executable = session.device, session.executable
    with device.lock:
        recording, numbers, copies = session.stage_inputs(inputs, states)
        places = [
            session.buffer(port, states) if isinstance(port, TensorPort) else None
            for port in executable.inputs
        ]
        commands: list[Command] = [*copies]
        used: dict[Recording, list[int]] = {}  # with the numbers of its live terms afterwards
        count = 0
        while True:
            outputs = session.outputs(recording, numbers, states)
            once = recording.replay(states)
            grown = growth_per_step(executable, inputs, growth)
            advance = recording.advance(*grown) if grown else None
            if advance is None:
                if not used:
                    commands += [once, *commands_after(places, outputs, None)]
                    count = 1
                break
            later = inputs_after(inputs, growth, count)
            within = steps_within(recording.plan.indices, later, growth, most - count)
            steps = advance.advance.steps(numbers, within)
            if steps < 1:  # indices would leave their ranges
                break
            increments = advance.single_buffer
            again = [once, *commands_after(places, outputs, increments)]
            commands += (again if increments else [*again, advance.replay]) * steps
            counted = 0 if used else 1  # by `stage_inputs`
            session.counters.dispatches += (steps - counted) * recording.dispatches
            recording.note_parameters(None)  # unknown if the submission fails
            used[recording] = advance.advance.after(numbers, steps)
            count += steps
            if count == most:
                break
            following = _following(session, inputs_after(inputs, growth, count), list(used))
            if following is None:
                break
            recording, numbers = following
        number = submit(device, [*commands, *then], timer)
        for recording, numbers in used.items():
            recording.note_parameters(numbers)
        return number, count


def _following(
    session: Session, inputs: Sequence[Input], used: Sequence[Recording]
) -> tuple[Recording, list[int]] | None:
    """The recording that continues with inputs on the GPU, and the numbers of its live terms; None if there
    is none. A recording that this submission already uses does not qualify, because its parameters are
    written before the first step. Nor does one that reads an input which the first recording does not read,
    because that input is not uploaded."""
    with suppress(PteronError):  # a later call with these inputs raises it
        recording, numbers = session.find_recording(inputs)
        is_seen = all(
            used[0].touches(port.buffer) or not recording.touches(port.buffer)
            for port in session.executable.inputs
            if isinstance(port, TensorPort)
        )
        if is_seen and recording not in used:
            session.counters.parameter_writes += recording.refresh(numbers)
            return recording, numbers
    return None
