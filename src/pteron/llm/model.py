"""A language model: a program's forward method, run over one sequence of tokens.

Tokens enter, from the host or from where the GPU has drawn them; logits leave, and stay on the GPU where
nobody reads them. What the cache holds meanwhile is known by `llm/cached_sequence.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.gpu import Buffer, Command, Growing, PassTimer, Replay
from pteron.host.tensors import View
from pteron.llm.arguments import integers
from pteron.llm.cached_sequence import CachedSequence
from pteron.llm.pace import Pace
from pteron.llm.reentrancy import device_guard
from pteron.llm.sampling import Sampler, Sampling
from pteron.llm.sampling.recent import Recent
from pteron.plan import TensorPort
from pteron.runtime import Program
from pteron.runtime.outputs import Outputs
from pteron.runtime.session import Then

Logits = npt.NDArray[np.float32]
# From logits where they lie, to where the next token goes; what else is given grows.
Draw: TypeAlias = Callable[[View, Buffer, Growing | None], Replay]


class LanguageModel(CachedSequence):
    """Runs `forward(tokens [1, steps], input_pos [1]) -> logits` as ExecuTorch's exporter makes it."""

    def __init__(self, program: Program, method: str = "forward", *, own_sequence: bool = False) -> None:
        sequence = program.sequence() if own_sequence else None
        found = (sequence or program)[method]
        inputs, outputs = found.inputs, found.outputs
        is_one = len(inputs) == 2 and len(inputs[0].shape_max) == 2 and outputs and outputs[0].shape_max
        if not is_one or not all((*inputs[0].shape_max, *outputs[0].shape_max)):
            raise UnsupportedError(
                f"{program.file.name}: {method} is not a language model with a cache: it takes "
                f"({', '.join(map(str, inputs))}), not (tokens [1, steps], input_pos [1])"
            )
        super().__init__(program, found, _context(program))
        self.steps_max = inputs[0].shape_max[1]
        self.is_dynamic = inputs[0].dynamic[1]
        self.vocabulary = outputs[0].shape_max[-1]
        self.bos_id = next(iter(_constants(program, "get_bos_id")), None)
        self.eos_ids = _constants(program, "get_eos_ids")
        self.timer: PassTimer | None = None
        self.pace = Pace()
        self.recent = Recent()
        self._method_name = method
        self._sequence = sequence

    def sequence(self) -> LanguageModel:
        """The same model over another sequence of tokens, with a cache of its own."""
        other = LanguageModel(self.program, self._method_name, own_sequence=True)
        other.pace, other.recent = self.pace, self.recent
        other._rows = (self.row_bytes,)
        return other

    def sampler(self, sampling: Sampling, *, masked: bool = False) -> Sampler:
        """A sampler for this model's logits. What those of other numbers share with it stays compiled."""
        return Sampler(
            self.device, self.vocabulary, sampling, self.logits_dtype, masked=masked, recent=self.recent
        )

    def close(self) -> None:
        """Free the cache, where it is this sequence's own and not the program's."""
        if self._sequence is not None:
            self._sequence.close()

    def prefill(self, ids: Sequence[int]) -> Logits:
        """Read tokens in chunks as long as the program takes; the logits after the last of them."""
        return self.read(self.ids(ids), self.claim())

    def read(self, ids: Sequence[int], user: object) -> Logits:
        """The same for a user of the sequence, with ids that were checked."""
        self.check_room(len(ids))
        logits = np.zeros(self.vocabulary, np.float32)
        for chunk in self.chunks(ids):
            with self.device.lock, device_guard(self.device):
                self.check_user(user)
                self._overwrite()
                self._is_lost = True
                (result, *_) = self.method(np.array([chunk], np.int64), np.array([self.position], np.int64))
                self._is_lost = False
                self._advance(chunk)
            logits = np.asarray(result, np.float32).reshape(-1, self.vocabulary)[-1]
        return logits

    def decode_one_token(self, token: int) -> Logits:
        """The logits after one more token."""
        return self.prefill([token])

    def ids(self, given: Iterable[int]) -> list[int]:
        """Token ids as plain integers, all of them in the vocabulary."""
        ids = integers("token ids", given)
        outside = [token for token in ids if not 0 <= token < self.vocabulary]
        if outside:
            raise InputError(f"token {outside[0]} is outside the vocabulary of {self.vocabulary}")
        return ids

    def chunks(self, ids: Sequence[int]) -> list[list[int]]:
        """Tokens in pieces that the program takes at once."""
        size = self.steps_max if self.is_dynamic else 1
        if not self.is_dynamic and self.steps_max != 1:
            raise UnsupportedError(
                f"{self.program.file.name}: takes exactly {self.steps_max} tokens at a time; "
                "export with a dynamic shape, or one token at a time"
            )
        return [list(ids[start : start + size]) for start in range(0, len(ids), size)]

    # Without waiting ----------------------------------------------------------------------------

    def launch(self, tokens: list[int], then: Then | None = None) -> int:
        """Run tokens through the model, and then further commands."""
        assert self.delegate is not None
        self._overwrite()
        # Tokens are of the type that the GPU has them in: nothing is left to convert.
        given = np.array([tokens], np.int32), np.array([self.position], np.int64)
        submission = self.delegate.launch(given, then, self.timer)
        self._advance(tokens)
        return submission

    def launch_steps(self, token: View, most: int, draw: Draw, then: Sequence[Command]) -> tuple[int, int]:
        """Run the token that the GPU holds through the model, then up to `most` - 1 more, each the one that
        `draw` makes of the logits before it, and then further commands. Returns the submission's number, and
        how many tokens were run."""
        assert self.delegate is not None
        self._overwrite()

        def each(
            inputs: Sequence[Buffer | None], outputs: Outputs, growing: Growing | None = None
        ) -> list[Command]:
            logits = outputs[0]
            assert isinstance(logits, View)
            return [draw(logits.last_row(), inputs[0], growing)]

        given = (token, np.array([self.position], np.int64))
        submission, count = self.delegate.repeat(
            given, {1: 1}, most, each, then, self.timer, each_growing=each
        )
        self.position += count
        return submission, count

    @property
    def logits_dtype(self) -> DType:
        """The element type of the logits inside the program: f16 where it was exported so."""
        return self._logits.dtype if self._logits else DType.F32

    @property
    def is_resident(self) -> bool:
        """Whether steps can follow one another on the GPU without the host: the model is one delegate, its
        live integers come from the position alone, and the logits of every row start at a whole word."""
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


def _context(program: Program) -> int:
    """How many tokens a sequence may have; 0 where the program does not say."""
    declared = *_constants(program, "get_max_context_len"), *_constants(program, "get_max_seq_len"), 0
    context = declared[0]
    if context < 0:
        raise FormatError(f"{program.file.name}: a context of {context} tokens")
    return context


def _constants(program: Program, name: str) -> tuple[int, ...]:
    """What a method without inputs returns; nothing where the program has no such method."""
    if name not in program:
        return ()
    try:
        return tuple(integers("its results", program[name]()))
    except InputError as error:
        raise FormatError(f"{program.file.name}: {name} is no constant: {error}") from error
