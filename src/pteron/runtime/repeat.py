"""A graph several times in one submission: from one step to the next the host writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pteron.gpu import Buffer, Command, Growing, PassTimer, States, submit
from pteron.plan import TensorPort
from pteron.runtime.outputs import Outputs
from pteron.runtime.session import Session
from pteron.runtime.staging import Input, growing, steps_within

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
    commands that `each` makes bring into place. It runs less often where the plan holds for fewer times.
    Where the commands of `each_growing` can let parameters grow, no dispatch does that alone.

    Returns the submission's number and how often the graph runs.
    """
    device, executable = session.device, session.executable
    with device.lock:
        recording, numbers, copies = session.bring(inputs, states)
        places = [
            session.buffer(port, states) if isinstance(port, TensorPort) else None
            for port in executable.inputs
        ]
        outputs = session.outputs(recording, numbers, states)
        once = recording.replay(states)
        advancing = recording.advancing(*growing(executable, inputs, growth))
        if advancing is None:
            return submit(device, [*copies, once, *each(places, outputs), *then], timer), 1
        if each_growing and advancing.sole:
            again = [once, *each_growing(places, outputs, advancing.sole)]
        else:
            again = [once, *each(places, outputs), advancing.replay]
        most = steps_within(recording.plan.indices, inputs, growth, most)
        count = advancing.advance.steps(numbers, most)
        session.counters.dispatches += (count - 1) * recording.dispatches
        with recording.growing(advancing.advance.after(numbers, count)):
            return submit(device, [*copies, *again * count, *then], timer), count
