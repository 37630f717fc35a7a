"""A language model: a program's forward method, run over one sequence of tokens.

In: tokens, from the host or drawn on the GPU. Out: logits, which stay on the GPU unless they are read.
`llm/cache/sequence.py` keeps track of the KV cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.gpu import Buffer, Command, PassTimer, Replay, WordIncrements
from pteron.host.tensors import View
from pteron.llm.arguments import integers
from pteron.llm.cache.options import stated_context
from pteron.llm.cache.sequence import CachedSequence
from pteron.llm.images.prompt import text_start
from pteron.llm.sampling import Sampler, Sampling
from pteron.llm.sampling.sampler import SamplerSessions
from pteron.ops.terms import dim_id
from pteron.plan import Plan, TensorPort
from pteron.runtime import Program
from pteron.runtime.multi_step import repeat
from pteron.runtime.outputs import Outputs
from pteron.runtime.session import OutputCommands

Logits = npt.NDArray[np.float32]
# (logits on the GPU, buffer for the next token, words that grow with every step) -> the commands of a draw
Draw: TypeAlias = Callable[[View, Buffer, WordIncrements | None], Replay]


class LanguageModel(CachedSequence):
    """Runs `forward(tokens [1, steps], input_pos [1]) -> logits`, as ExecuTorch exports it."""

    def __init__(
        self,
        program: Program,
        method: str = "forward",
        *,
        own_sequence: bool = False,
        context: int | None = None,
    ) -> None:
        sequence = program.sequence() if own_sequence else None
        found = (sequence or program)[method]
        inputs, outputs = found.inputs, found.outputs
        is_one = len(inputs) == 2 and len(inputs[0].shape_max) == 2 and outputs and outputs[0].shape_max
        if not is_one or not all((*inputs[0].shape_max, *outputs[0].shape_max)):
            raise UnsupportedError(
                f"{program.file.name}: {method} is not a language model with a cache: it takes "
                f"({', '.join(map(str, inputs))}), not (tokens [1, steps], input_pos [1])"
            )
        super().__init__(program, found, stated_context(program.file) if context is None else context)
        self.steps_max = inputs[0].shape_max[1]
        self.is_dynamic = inputs[0].dynamic[1]
        self.vocabulary = outputs[0].shape_max[-1]
        self.bos_id = next(iter(_constants(program, "get_bos_id")), None)
        self.eos_ids = _constants(program, "get_eos_ids")
        self.timer: PassTimer | None = None
        self.pace = Pace()
        self.sampler_sessions = SamplerSessions()
        self._method_name = method
        self._sequence = sequence

    def sequence(self) -> LanguageModel:
        """The same model over another sequence, with its own KV cache."""
        other = LanguageModel(self.program, self._method_name, own_sequence=True, context=self.context)
        other.pace, other.sampler_sessions, other.adapters = self.pace, self.sampler_sessions, self.adapters
        other._layout = (self.row_layout,)
        return other

    def sampler(self, sampling: Sampling, *, masked: bool = False) -> Sampler:
        """A sampler for this model's logits. Samplers that differ only in numbers share compiled kernels."""
        return Sampler(
            self.device,
            self.vocabulary,
            sampling,
            self.logits_dtype,
            masked=masked,
            sessions=self.sampler_sessions,
        )

    def close(self) -> None:
        """Free the KV cache, unless it is the program's own."""
        if self._sequence is not None:
            self._sequence.close()

    def prefill(self, ids: Sequence[int]) -> Logits:
        """Run tokens through the model in chunks of the program's size; returns the logits after the last."""
        return self.prefill_as(self.ids(ids), self.claim())

    def prefill_as(self, ids: Sequence[int], user: object) -> Logits:
        """`prefill` for a user of the sequence; the ids are already checked."""
        self.check_room(len(ids))
        logits = np.zeros(self.vocabulary, np.float32)
        chunks = self.chunks(ids)
        for index, chunk in enumerate(chunks):
            with self.device.lock:
                self.check_user(user)
                if index < len(chunks) - 1 and self.is_resident:
                    self.submit(chunk)
                    continue
                self._before_write(len(chunk))
                self._is_lost = True
                (result, *_) = self.method(np.array([chunk], np.int64), np.array([self.position], np.int64))
                self._is_lost = False
                self._advance(chunk)
            logits = np.asarray(result, np.float32).reshape(-1, self.vocabulary)[-1]
        return logits

    def decode_one_token(self, token: int) -> Logits:
        """Run one more token through the model; returns the logits."""
        return self.prefill([token])

    def warm(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Make the plans for prompts of all lengths, the longest first, for a token at all positions, and for
        prompts there, as long as they are wanted. Other threads may use the model meanwhile."""
        if self.delegate is None or not self.is_resident:
            return
        executable, session = self.delegate.executable, self.delegate.session
        dim, positions = dim_id(executable.inputs[0].id, 1), [each.symbol for each in executable.sources]

        def made(length: int, position: int) -> tuple[Plan, dict[int, int]]:
            given = np.zeros((1, length), np.int64), np.array([position], np.int64)
            return session.make_plan(given), {dim: length, **dict.fromkeys(positions, position)}

        lengths = []
        length = self.steps_max - 1 if self.is_dynamic else 1
        while length > 1 and is_wanted():
            lengths.append(length)
            plan, values = made(length, 0)
            length = (plan.reach(values, [dim], 1) if plan.asks(dim) else length) - 1
        for length in (1, *lengths):
            position = 0
            while positions and position + length <= (self.context or 0) and is_wanted():
                plan, values = made(length, position)
                position = plan.reach(values, positions, (self.context or 0) - length) + 1

    def ids(self, given: Iterable[int]) -> list[int]:
        """Token ids as plain integers; an error if one is outside the vocabulary."""
        ids = integers("token ids", given)
        outside = [token for token in ids if not 0 <= token < self.vocabulary]
        if outside:
            raise InputError(f"token {outside[0]} is outside the vocabulary of {self.vocabulary}")
        return ids

    def chunks(self, ids: Sequence[int]) -> list[list[int]]:
        """Tokens in chunks of the program's size. Rows of images are not in the last chunk, which gives the
        logits."""
        size = self.steps_max if self.is_dynamic else 1
        if not self.is_dynamic and self.steps_max != 1:
            raise UnsupportedError(
                f"{self.program.file.name}: takes exactly {self.steps_max} tokens at a time; "
                "export with a dynamic shape, or one token at a time"
            )
        text = text_start(ids)
        parts = (ids[:text], ids[text:])
        return [list(part[start : start + size]) for part in parts for start in range(0, len(part), size)]

    # Submission without waiting ------------------------------------------------------------------

    def submit(self, tokens: list[int], then: OutputCommands | None = None) -> int:
        """Submit tokens through the model, and then further commands; returns the submission's number. If
        nothing follows, logits are not computed."""
        assert self.delegate is not None
        self._before_write(len(tokens))
        # int32 is the type of tokens on the GPU, so nothing is converted.
        given = np.array([tokens], np.int32), np.array([self.position], np.int64)
        submission = self.delegate.submit(given, then, self.timer, states_only=then is None)
        self._advance(tokens)
        return submission

    def submit_steps(self, token: View, most: int, draw: Draw, then: Sequence[Command]) -> tuple[int, int]:
        """Submit up to `most` decode steps, then the commands of `then`. The first step reads a token on the
        GPU; each later step reads the token that `draw` drew from the logits before it. Returns the
        submission's number and the number of steps."""
        assert self.delegate is not None
        self._before_write(most)

        def sample(
            inputs: Sequence[Buffer | None], outputs: Outputs, growing: WordIncrements | None
        ) -> list[Command]:
            return [draw(last_row(outputs), inputs[0], growing)]

        given = (token, np.array([self.position], np.int64))
        session, states = self.delegate.session, self.delegate.states
        submission, count = repeat(session, given, states, {1: 1}, most, sample, then, self.timer)
        self.position += count
        return submission, count

    @property
    def logits_dtype(self) -> DType:
        """The element type of the logits inside the program."""
        return self._logits.dtype if self._logits else DType.F32

    @property
    def is_resident(self) -> bool:
        """Whether steps can run on the GPU without the host in between: the model is one delegate, its live
        integers depend on the position only, and the logits of every row are aligned to 4 bytes."""
        if self.delegate is None or self._logits is None:
            return False
        executable = self.delegate.executable
        positioned = all(source.input == 1 for source in executable.sources)
        aligned = len(self._logits.shape_max) < 3 or self.vocabulary * self._logits.storage.itemsize % 4 == 0
        return len(executable.inputs) == 2 and positioned and aligned

    @property
    def _logits(self) -> TensorPort | None:
        output = self.delegate.executable.outputs[0] if self.delegate else None
        return output if isinstance(output, TensorPort) else None


def last_row(outputs: Outputs) -> View:
    """The logits after the last token of a call."""
    logits = outputs[0]
    assert isinstance(logits, View)
    return logits.last_row()


def _constants(program: Program, name: str) -> tuple[int, ...]:
    """The results of a method without inputs; () if the program has no such method."""
    if name not in program:
        return ()
    try:
        return tuple(integers("its results", program[name]()))
    except InputError as error:
        raise FormatError(f"{program.file.name}: {name} is no constant: {error}") from error


STEPS_MAX = 12  # per submission, no more than the sampler's RING
SECONDS_MAX = 0.016  # per submission: tokens arrive as smoothly as a screen shows them


@dataclass(slots=True)
class Pace:
    """The number of steps in the next submission. It grows until a submission takes SECONDS_MAX, and by at
    most half each time: the GPU must not idle while the host prepares a longer submission. All sequences of a
    model share one Pace, so only its first generation adapts it."""

    steps: int = 1
    seconds: float = 0.0  # of a step: a moving average; 0: not known yet

    def update(self, count: int, seconds: float) -> None:
        """Adapt to a submission of `count` steps that took `seconds`."""
        each = seconds / count
        self.seconds += 0.2 * (each - self.seconds) if self.seconds else each
        fitting = int(count * SECONDS_MAX / max(seconds, 1e-9))
        more = self.steps + max(1, self.steps // 2)
        self.steps = max(1, min(more, STEPS_MAX, fitting))
