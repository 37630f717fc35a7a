"""Steppers submit the GPU work of running requests: prompt chunks and decode steps.

`SingleStepper` decodes each sequence with the plan of one sequence, `BatchedStepper` several in one batch,
`HostStepper` draws from logits that pass through the host. `StepperChoice` picks one for an engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic, perf_counter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError, UnsupportedError
from pteron.gpu import Buffer, Command, Copy, Replay, WordIncrements
from pteron.gpu import submit as submit_commands
from pteron.gpu.fork import new_lock
from pteron.host.tensors import View
from pteron.llm.engine.batched_model import BatchedModel, BatchRow
from pteron.llm.engine.running import RunningRequest
from pteron.llm.images.prompt import has_images
from pteron.llm.model import LanguageModel, last_row
from pteron.llm.sampling import Drawn
from pteron.llm.text_model import TextModel
from pteron.runtime.outputs import Outputs
from pteron.runtime.session import OutputCommands

Arrived: TypeAlias = list[tuple[RunningRequest, list[Drawn]]]
Part: TypeAlias = tuple[RunningRequest, ...]
GATHER_SECONDS = 0.002  # how long requests with a known mask wait for the masks of others


@dataclass(frozen=True, slots=True, eq=False)
class Submission:
    """Work in flight for some requests: `steps` decode steps of each, or 0 for a prompt chunk."""

    requests: Part
    steps: int
    read: Callable[[], Sequence[list[Drawn]]]  # waits; the tokens of each request, or () if none were drawn
    is_done: Callable[[], bool] = lambda: True
    started: float = field(default_factory=perf_counter)
    note_seconds: Callable[[float], None] | None = None  # takes its time on the GPU; None: for the Pace
    reached: int = 0  # tokens of the prompt that its request has read then, if it is a chunk

    def is_ready(self) -> bool:
        """Whether `wait` returns at once, as far as is known."""
        with self.requests[0].model.device.lock:
            return self.is_done()

    def wait(self) -> Arrived:
        """Wait for it; returns the tokens that it drew, if any."""
        with self.requests[0].model.device.lock:
            return list(zip(self.requests, self.read(), strict=False))


class RequestFailed(Exception):  # noqa: N818  # it never reaches a caller
    """The work of one request among several failed; its cause says why. Nothing was submitted."""

    def __init__(self, request: RunningRequest) -> None:
        super().__init__(request)
        self.request = request


@contextmanager
def failing_alone(request: RunningRequest) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RequestFailed(request) from error


class Stepper(ABC):
    """Submits the work of running requests. `Turns` keeps the submissions.

    - `prefill` submits the next of a request's `chunks` and removes it. The last chunk also draws the first
      token, and `step` becomes 1, unless a grammar's mask is needed first.
    - `prepare` is called once before the `parts` of a turn, which change nothing.
    - `parts` groups those of the given requests that can step now: a part is one submission. Requests may
      join and leave from one call to the next, also while submissions for them are in flight.
    - `step` submits up to `most` steps of a part, at least one, and adds them to each request's `step`.
    - `prefill_ahead` submits the model's work on the last token while the next mask is being computed.

    Only HostStepper waits for the GPU. An error fails the given requests and no others; a RequestFailed fails
    one of them, and the others can be given again.
    """

    @abstractmethod
    def prefill(self, request: RunningRequest) -> Submission: ...

    def prepare(self, requests: Sequence[RunningRequest]) -> None:  # noqa: B027  # most have nothing to do
        pass

    @abstractmethod
    def parts(self, requests: Sequence[RunningRequest]) -> list[Part]: ...

    @abstractmethod
    def step(self, part: Part, most: int) -> Submission: ...

    @abstractmethod
    def prefill_ahead(self, request: RunningRequest) -> None: ...


class SingleStepper(Stepper):
    """Each sequence steps alone, and its tokens stay on the GPU from step to step."""

    def prefill(self, request: RunningRequest) -> Submission:
        chunk = request.take_chunk()
        if has_images(chunk):
            return _submit_images(request, chunk)
        if request.chunks:
            return self._submit_chunk(request, chunk)
        if request.matcher:
            return self._prefill_logits(request, chunk)

        def submit(copy: Copy) -> tuple[int, int]:
            commands, step = request.sampler.commands, request.step
            return request.model.submit(chunk, lambda outputs: [*commands(last_row(outputs), step), copy]), 1

        return self._submit_draws(request, submit, is_step=False)

    def parts(self, requests: Sequence[RunningRequest]) -> list[Part]:
        return [(request,) for request in requests if request.can_step]

    def step(self, part: Part, most: int, token: View | None = None) -> Submission:
        """Steps from the last drawn token on, or from the one at `token`."""
        (request,) = part
        if request.propose():
            return self._verify(request)
        model, sampler, step = request.model, request.sampler, request.step
        most = min(most, request.steps_left)
        if request.matcher:
            sampler.allow(request.take_mask())
            most = 1

        def draw(logits: View, token: Buffer, growing: WordIncrements | None) -> Replay:
            return sampler.replay(logits, step, token, growing)

        def submit(copy: Copy) -> tuple[int, int]:
            if request.has_logits:
                request.has_logits = False
                return submit_commands(model.device, [*sampler.commands(sampler.kept, step), copy]), 1
            return model.submit_steps(token or sampler.drawn_at(step - 1), most, draw, [copy])

        return self._submit_draws(request, submit)

    def prefill_ahead(self, request: RunningRequest) -> None:
        self._prefill_logits(request, request.drawn[-1:])

    def _verify(self, request: RunningRequest) -> Submission:
        """Submit the last token and the proposed ones as rows of one step, and a draw from each row. The
        draws up to the first that differs from the proposal are the next tokens."""
        speculation, model, sampler = request.speculation, request.model, request.sampler
        assert speculation is not None
        verifier, tokens = speculation.speculator.verifier, [request.drawn[-1], *speculation.proposal]
        device, size, count, first = model.device, sampler.drawn_bytes, len(tokens), request.step

        def draw(outputs: Outputs) -> list[Command]:
            logits = outputs[0]
            assert isinstance(logits, View)
            return [*sampler.draw_rows(logits, first, count), Copy(sampler.drawn, readback.staging, size)]

        with device.lock:
            model.check_user(request.user)
            readback = device.readback(size)
            number = verifier.submit(model, tokens, draw)
            sampler.set_step(first + count)
            readback.begin()
        request.step += 1  # at least

        def read() -> list[list[Drawn]]:
            data = readback.peek(0, size, number)
            readback.release()
            return [request.accept([sampler.read(data, first + row) for row in range(count)])]

        note = partial(speculation.note_seconds, verifier.rows_for(count))
        return Submission((request,), 1, read, readback.is_ready, speculation.started, note)

    def _prefill_logits(self, request: RunningRequest, tokens: list[int]) -> Submission:
        """Submit tokens and keep a copy of their logits, so that other submissions may precede the draw."""
        keep = request.sampler.keep
        submission = self._submit_chunk(request, tokens, lambda outputs: [keep(last_row(outputs))])
        request.has_logits = True
        return submission

    def _submit_chunk(
        self, request: RunningRequest, tokens: list[int], then: OutputCommands | None = None
    ) -> Submission:
        """Submit tokens, and then commands that draw nothing."""
        device = request.model.device
        with device.lock:
            request.model.check_user(request.user)
            number = request.model.submit(tokens, then)

        return _drawing_nothing(request, number)

    def _submit_draws(
        self, request: RunningRequest, submit: Callable[[Copy], tuple[int, int]], *, is_step: bool = True
    ) -> Submission:
        """Submit draws from the request's `step` on. `submit` gets the copy of the drawn tokens to a staging
        buffer, and returns the submission's number and the number of draws."""
        sampler, device, first = request.sampler, request.model.device, request.step
        size = sampler.drawn_bytes
        with device.lock:
            request.model.check_user(request.user)
            readback = device.readback(size)
            number, count = submit(Copy(sampler.drawn, readback.staging, size))
            sampler.set_step(first + count)
            readback.begin()
        request.step += count

        def read() -> list[list[Drawn]]:
            data = readback.peek(0, size, number)
            readback.release()
            return [[sampler.read(data, step) for step in range(first, first + count)]]

        return Submission((request,), count if is_step else 0, read, readback.is_ready)


def _drawing_nothing(request: RunningRequest, number: int) -> Submission:
    """A submission with this number, of a prompt chunk that draws no token."""
    device = request.model.device

    def wait() -> Sequence[list[Drawn]]:
        device.poll(wait=True, submission=number)
        return ()

    return Submission((request,), 0, wait)


def _submit_images(request: RunningRequest, chunk: list[int]) -> Submission:
    """Submit a prompt chunk with rows of images, which is never the last one."""
    assert request.images is not None
    number = request.images.submit(request.model, request.user, chunk)
    request.drop_read_images()
    return _drawing_nothing(request, number)


class HostStepper(Stepper):
    """Each sequence steps alone, and its logits pass through the host: works for every program."""

    def prefill(self, request: RunningRequest) -> Submission:
        chunk = request.take_chunk()
        if has_images(chunk):
            return _submit_images(request, chunk)
        logits = request.model.prefill_as(chunk, request.user)
        if request.matcher and not request.chunks:
            request.host_logits = logits
        if request.matcher or request.chunks:
            return Submission((request,), 0, lambda: ())
        drawn = self._draw(request, logits)
        return Submission((request,), 0, lambda: ([drawn],))

    def parts(self, requests: Sequence[RunningRequest]) -> list[Part]:
        return [(request,) for request in requests if request.can_step and request.step == len(request.drawn)]

    def step(self, part: Part, most: int) -> Submission:
        (request,) = part
        logits, request.host_logits = request.host_logits, None
        if logits is None:
            logits = request.model.prefill_as(request.drawn[-1:], request.user)
        drawn = self._draw(request, logits)
        return Submission((request,), 1, lambda: ([drawn],))

    def prefill_ahead(self, request: RunningRequest) -> None:
        pass

    def _draw(self, request: RunningRequest, logits: npt.NDArray[np.float32]) -> Drawn:
        if request.matcher:
            request.sampler.allow(request.take_mask())
        sampler, device = request.sampler, request.model.device
        with device.lock:
            sampler.draw(logits, request.step)
            drawn = sampler.read(device.read(sampler.drawn, sampler.drawn_bytes), request.step)
        request.step += 1
        return drawn


def stepper_for(model: LanguageModel, resident: bool | None) -> Stepper:
    """The stepper of a request that runs alone; None: tokens stay on the GPU if the program can."""
    if resident and not model.is_resident:
        raise InputError(f"{model.program.file.name}: this model's loop cannot stay on the GPU")
    return SingleStepper() if resident or (resident is None and model.is_resident) else HostStepper()


class BatchedStepper(Stepper):
    """Two or more sequences in slots step as one batch; all others step with `single`."""

    def __init__(self, batched: BatchedModel, single: SingleStepper) -> None:
        self.single = single
        self._batched = batched
        self._are_several = False  # requests with grammars

    def prefill(self, request: RunningRequest) -> Submission:
        self._batched.move_into_slot(request.model)
        return self.single.prefill(request)

    def prepare(self, requests: Sequence[RunningRequest]) -> None:
        """Make the proposals of requests that would otherwise step together."""
        self._are_several = sum(map(self._has_masks, requests)) > 1
        joining = self._joining([request for request in requests if request.can_step])
        for request in joining:
            with failing_alone(request):
                request.propose(len(joining) - 1)

    def parts(self, requests: Sequence[RunningRequest]) -> list[Part]:
        ready = [request for request in requests if request.can_step]
        free = tuple(request for request in self._joining(ready) if not request.has_proposal)
        masked, is_complete = self._gather(requests)
        delayed = () if is_complete else masked
        parts = [part for part in (free, masked) if len(part) > 1 and part is not delayed]
        others = {*delayed, *(request for part in parts for request in part)}
        return [*parts, *((request,) for request in ready if request not in others)]

    def _gather(self, requests: Sequence[RunningRequest]) -> tuple[Part, bool]:
        """The requests with grammars that can step as one batch now, and whether the batch is complete: no
        other request is about to be ready. An incomplete batch would alternate with a second one, and the
        weights would be read twice."""
        joining = [request for request in requests if self._has_masks(request)]
        stepping = [request for request in joining if not request.has_logits]
        ready = tuple(request for request in stepping if request.can_step)
        since = monotonic() - GATHER_SECONDS
        late = [request.mask for request in stepping if request not in ready and request.step < request.count]
        return ready, not any(mask is None or mask.requested > since for mask in late)

    def step(self, part: Part, most: int) -> Submission:
        if len(part) == 1:
            return self._step_single(part[0], most)
        count = min(most, *(request.steps_left for request in part))
        if part[0].matcher:
            count = 1
        with self._batched.device.lock:
            rows = [self._row(request) for request in part]
            for request in part:
                request.mask = None
                request.model.record_steps(count)
            submitted = self._batched.step(rows, count)
        for request in part:
            request.step += count
            request.is_in_batch = True
        return Submission(part, count, submitted.read, submitted.readback.is_ready)

    def prefill_ahead(self, request: RunningRequest) -> None:
        if not self._are_several:
            self.single.prefill_ahead(request)

    def _step_single(self, request: RunningRequest, most: int) -> Submission:
        slot = self._batched.slot_of(request.model)
        token = None
        if slot is not None and request.is_in_batch:
            token = self._batched.token_of(slot)
            self._batched.leave(slot, request.sampler)
        submission = self.single.step((request,), most, token)
        request.is_in_batch = False
        return submission

    def _joining(self, ready: Sequence[RunningRequest]) -> list[RunningRequest]:
        """Those without grammars that are in slots."""
        return [request for request in ready if not request.matcher and self._can_join(request)]

    def _has_masks(self, request: RunningRequest) -> bool:
        """Whether a request steps with others that have grammars."""
        return request.matcher is not None and request.is_prefilled and self._can_join(request)

    def _can_join(self, request: RunningRequest) -> bool:
        """Whether a request steps in a batch as soon as it can step."""
        return self._batched.slot_of(request.model) is not None

    def _row(self, request: RunningRequest) -> BatchRow:
        """The row of a request, prepared for the next step. The request keeps its mask until then: another
        one of the batch may fail."""
        with failing_alone(request):
            request.model.check_user(request.user)
            slot = self._batched.slot_of(request.model)
            assert slot is not None
            token = None if request.is_in_batch else request.sampler.drawn_at(request.step - 1)
            sampler = None if request.sampler.form.is_plain else request.sampler
            mask = request.mask.get() if request.mask else None
            row = BatchRow(slot, request.model.position, token, sampler, request.step, mask)
            return replace(row, joining=self._batched.join(row))


class StepperChoice:
    """The stepper of an engine: single until a second request runs, then batched if the model allows it.

    The memory of a batch is allocated only then. With `batched=True` it is allocated at once, or an error
    says why not; with False, never.
    """

    def __init__(self, llm: TextModel, batched: bool | None = None) -> None:
        llm.model.chunks([0])  # an error for programs that take prompts of one size only
        self._pool = llm.pool
        self._single = SingleStepper()
        self.stepper: Stepper = self._single if llm.model.is_resident else HostStepper()
        self.slots = 0  # of the batch
        self.reason = ""  # why each sequence steps alone, once that is decided
        self._is_decided = False
        self._listeners: list[Callable[[str], None]] = []
        self._lock = new_lock()
        why_not = "batched=False" if batched is False else BatchedModel.reason(llm.model)
        if batched and why_not:
            raise UnsupportedError(why_not)
        if why_not:
            self._decide(why_not)
        elif batched or llm.pool.batched is not None:
            self._batch(())
            self._decide()

    def __str__(self) -> str:
        if self.slots:
            return f"up to {self.slots} sequences step as one batch"
        return f"each sequence steps alone: {self.reason or 'no two requests have run at once'}"

    def prepare_batch(self, models: Sequence[LanguageModel]) -> None:
        """Switch to batched steps, if the device has memory: several requests run from now on."""
        if self._is_decided:
            return
        try:
            self._batch(models)
        except Exception as error:  # of any kind: sequences continue to step alone
            self._decide(str(error))
        else:
            self._decide()

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with `str(self)` once it is decided: now, or later in the engine's thread."""
        with self._lock:
            if not self._is_decided:
                self._listeners.append(listener)
                return
        listener(str(self))

    def _batch(self, models: Sequence[LanguageModel]) -> None:
        batched = self._pool.gather(models)
        self.stepper = BatchedStepper(batched, self._single)
        self.slots = batched.slots.count

    def _decide(self, reason: str = "") -> None:
        with self._lock:
            self.reason, self._is_decided = reason, True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(str(self))
