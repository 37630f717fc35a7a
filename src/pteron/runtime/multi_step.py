"""A graph several times in one submission: from one step to the next the host writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TypeAlias

from pteron.errors import PteronError
from pteron.gpu import Buffer, Command, Growing, PassTimer, Recording, States, submit
from pteron.plan import TensorPort
from pteron.runtime.outputs import Outputs
from pteron.runtime.session import Session
from pteron.runtime.staging import Input, growing, grown, steps_within

# Commands that follow a step, from where its inputs and outputs lie.
Each: TypeAlias = Callable[[Sequence[Buffer | None], Outputs], Sequence[Command]]
# The same, and they let words grow.
EachGrowing: TypeAlias = Callable[[Sequence[Buffer | None], Outputs, Growing], Sequence[Command]]


def repeat(
    session: Session,
    inputs: Sequence[Input],
    states: States,
    growth: Mapping[int, int],
    most: int,
    each: Each,
    then: Sequence[Command],
    timer: PassTimer | None = None,
    *,
    each_growing: EachGrowing | None = None,
) -> tuple[int, int]:
    """Run a session's graph up to `most` times in one submission, and the commands of `then` after it.

    Elements of the inputs in `growth` grow by that much at every step, and whatever else changes, the
    commands that `each` makes bring into place. Where a plan no longer holds, the next goes on in the same
    submission; the graph runs less often where there is none, or where one cannot grow without the host.
    Where the commands of `each_growing` can let parameters grow, no dispatch does that alone.

    Returns the submission's number and how often the graph runs.
    """
    device, executable = session.device, session.executable
    with device.lock, ExitStack() as submitting:
        recording, numbers, copies = session.bring(inputs, states)
        places = [
            session.buffer(port, states) if isinstance(port, TensorPort) else None
            for port in executable.inputs
        ]
        commands: list[Command] = [*copies]
        used: list[Recording] = []
        count = 0
        while True:
            outputs = session.outputs(recording, numbers, states)
            once = recording.replay(states)
            advancing = recording.advancing(*growing(executable, inputs, growth))
            if advancing is None:
                if not used:
                    commands += [once, *each(places, outputs)]
                    count = 1
                break
            within = steps_within(recording.plan.indices, grown(inputs, growth, count), growth, most - count)
            steps = advancing.advance.steps(numbers, within)
            if steps < 1:  # indices would leave their ranges; those of the first step were checked
                break
            if each_growing and advancing.sole:
                again = [once, *each_growing(places, outputs, advancing.sole)]
            else:
                again = [once, *each(places, outputs), advancing.replay]
            commands += again * steps
            session.counters.dispatches += (steps - (not used)) * recording.dispatches  # `bring` counts one
            submitting.enter_context(recording.growing(advancing.advance.after(numbers, steps)))
            used.append(recording)
            count += steps
            following = _following(session, grown(inputs, growth, count), used) if count < most else None
            if following is None:
                break
            recording, numbers = following
        return submit(device, [*commands, *then], timer), count


def _following(
    session: Session, inputs: Sequence[Input], used: Sequence[Recording]
) -> tuple[Recording, list[int]] | None:
    """The recording that goes on with inputs which are in place, and the numbers of its live terms. It is no
    earlier one, since its parameters are written before the first step, and it looks at no input that the
    first did not look at, since that one is not in place."""
    with suppress(PteronError):  # what is wrong is said by the call that begins there
        recording, numbers = session.ready(inputs)
        is_seen = all(
            used[0].touches(port.buffer) or not recording.touches(port.buffer)
            for port in session.executable.inputs
            if isinstance(port, TensorPort)
        )
        if is_seen and recording not in used:
            session.counters.parameter_writes += recording.refresh(numbers)
            return recording, numbers
    return None
