"""A language model: a program's forward method over one sequence of tokens.

The cache lives on the GPU, with the sequence. `position` is where the next tokens go; `tokens` are those that
the cache holds for certain, whatever failed or was interrupted on the way: where the method itself did, none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.gpu import Buffer, Command, Growing, PassTimer, Replay
from pteron.llm.entered import work_on
from pteron.llm.given import integers
from pteron.llm.pace import Pace
from pteron.llm.rows import row_bytes
from pteron.llm.sampling import Sampler, Sampling
from pteron.llm.sampling.recent import Recent
from pteron.plan import TensorPort
from pteron.runtime import Method, Program
from pteron.runtime.outputs import Outputs
from pteron.runtime.session import Then
from pteron.runtime.tensors import View

Logits = npt.NDArray[np.float32]
Read: TypeAlias = tuple[list[int], list[bytes]]  # tokens, and what they have left behind in each cache
# From logits where they lie, to where the next token goes; what else is given grows.
Draw: TypeAlias = Callable[[View, Buffer, Growing | None], Replay]


class LanguageModel:
    """Runs `forward(tokens [1, steps], input_pos [1]) -> logits` as ExecuTorch's exporter makes it."""

    def __init__(self, program: Program, method: str = "forward", *, own_sequence: bool = False) -> None:
        self.program = program
        self._method_name = method
        self._sequence = program.sequence() if own_sequence else None
        self.method: Method = (self._sequence or program)[method]
        inputs, outputs = self.method.inputs, self.method.outputs
        is_one = len(inputs) == 2 and len(inputs[0].shape_max) == 2 and outputs and outputs[0].shape_max
        if not is_one or not all((*inputs[0].shape_max, *outputs[0].shape_max)):
            raise UnsupportedError(
                f"{program.file.name}: {method} is not a language model with a cache: it takes "
                f"({', '.join(map(str, inputs))}), not (tokens [1, steps], input_pos [1])"
            )
        self.steps_max = inputs[0].shape_max[1]
        self.is_dynamic = inputs[0].dynamic[1]
        self.vocabulary = outputs[0].shape_max[-1]
        self.context = self._constant("get_max_context_len", self._constant("get_max_seq_len", 0)) or 0
        if self.context < 0:
            raise FormatError(f"{program.file.name}: a context of {self.context} tokens")
        self.bos_id = self._constant("get_bos_id", None)
        self.eos_ids = self._constants("get_eos_ids")
        self.position = 0
        self.tokens: list[int] = []
        self.delegate = self.method.sole_delegate
        self.device = program.device
        self.timer: PassTimer | None = None
        self.pace = Pace()
        self.recent = Recent()
        self._user = object()
        self._is_lost = False  # a call failed, and nobody knows what it left in the cache
        self._rows: tuple[Mapping[int, int] | None] | None = None  # once it was asked for

    def sequence(self) -> LanguageModel:
        """The same model over another sequence of tokens, with a cache of its own."""
        other = LanguageModel(self.program, self._method_name, own_sequence=True)
        other.pace, other.recent = self.pace, self.recent
        other._rows = (self.row_bytes,)
        return other

    @property
    def sequence_bytes(self) -> int:
        """GPU memory of one more sequence."""
        return self.method.state_bytes

    @property
    def row_bytes(self) -> Mapping[int, int] | None:
        """What a token takes in each of the caches, by the state's id, where all that a sequence leaves
        behind are rows (`llm/rows.py`): these can be copied, written to a file and brought back."""
        if self._rows is None:
            self._rows = (row_bytes(self.program, self.method, self.context),)
        return self._rows[0]

    def sampler(self, sampling: Sampling, *, masked: bool = False) -> Sampler:
        """A sampler for this model's logits. What those of other numbers share with it stays compiled."""
        return Sampler(
            self.device, self.vocabulary, sampling, self.logits_dtype, masked=masked, recent=self.recent
        )

    def claim(self) -> object:
        """Have a new user, who goes on from what the cache holds for certain; the one before is refused from
        now on. After a call that failed that is nothing."""
        with self.device.lock, work_on(self.device):
            return self._claim()

    def _claim(self) -> object:
        self._user = user = object()
        if self._is_lost:
            self.tokens.clear()
            self.method.reset()
            self._is_lost = False
        self.position = min(self.position, len(self.tokens))
        return user

    def is_used_by(self, user: object) -> bool:
        return self._user is user

    def check_user(self, user: object) -> None:
        """Refuse a user who has lost the sequence to another; to be asked while the device's lock is held."""
        if self._user is not user:
            raise InputError(
                f"{self.program.file.name}: something else was begun on this sequence of tokens; texts "
                "that are told side by side need one each, as LanguageModel.sequence() makes them"
            )

    def resume(self, ids: Sequence[int], user: object) -> int:
        """Go to where a text parts from what the cache holds; how many of its tokens need not be read again.

        The last is one of those that do, even where the cache holds it: its logits are needed.
        """
        with self.device.lock, work_on(self.device):
            self.check_user(user)
            self.position = min(shared_length(self.tokens, ids), len(ids) - 1)
            return self.position

    def settle(self, user: object) -> None:
        """Go on from what the cache holds for certain, once a user has ended. One who has lost the sequence
        to another no longer says where it stands."""
        with self.device.lock:
            if self._user is user:
                self.position = len(self.tokens)

    def reset(self) -> None:
        """Forget everything. The cache need not be cleared: what lies beyond the position is never read."""
        with self.device.lock, work_on(self.device):
            self._claim()
            self.position = 0
            self.tokens.clear()

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
            with self.device.lock, work_on(self.device):
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

    def check_room(self, count: int) -> None:
        if self.context and self.position + count > self.context:
            raise InputError(
                f"{self.program.file.name}: {self.position} + {count} tokens exceed the context, "
                f"which holds {self.context}"
            )

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

    # What the cache holds -----------------------------------------------------------------------

    def note(self, position: int, token: int) -> None:
        """The token that was fed at a position on the GPU has become known."""
        if len(self.tokens) == position:
            self.tokens.append(token)

    def _overwrite(self) -> None:
        """Before anything is written at the position: from there on nothing is certain any more."""
        del self.tokens[self.position :]
        self.method.settle()  # what a call that failed has left there is not read

    def _advance(self, chunk: Sequence[int]) -> None:
        """A chunk was submitted, so the cache holds it by the time that anything else reads it."""
        if len(self.tokens) == self.position:
            self.tokens.extend(chunk)
        self.position += len(chunk)

    @property
    def certain(self) -> int:
        """How many tokens the cache holds for certain: after a call that failed, none."""
        return 0 if self._is_lost else len(self.tokens)

    def holds(self, ids: Sequence[int]) -> int:
        """How many of them are a text's, from the first on."""
        with self.device.lock:
            return shared_length(self.tokens[: self.certain], ids)

    def copy(self, source: LanguageModel, ids: Sequence[int], user: object) -> int:
        """Have in this cache, in place of all it holds, what another sequence's holds of a text, from its
        first token on; how many tokens that are. Nothing is waited for.

        The other may be in use: what it has submitted comes before the copy, what it will submit after it,
        and it writes behind the tokens that it holds for certain, or gives them up before it does.
        """
        assert self.delegate is not None
        assert source.delegate is not None
        with self.device.lock, work_on(self.device):
            self.check_user(user)
            kept = list(ids[: source.holds(ids)])
            self._begin_anew()
            self.delegate.states.copy(source.delegate.states, self._sizes(len(kept)))
            self._advance(kept)
        return len(kept)

    def rows(self, ids: Sequence[int] | None = None) -> Read:
        """The tokens that the cache holds for certain, or those of a text, from its first on; and what they
        have left behind, cache by cache."""
        assert self.delegate is not None
        with self.device.lock, work_on(self.device):
            kept = self.tokens[: self.certain if ids is None else self.holds(ids)]
            return kept, self.delegate.states.read(self._sizes(len(kept)))

    def put(self, tokens: Sequence[int], rows: Sequence[npt.NDArray[np.uint8]], user: object) -> None:
        """Have in this cache, in place of all it holds, what tokens have left in another (`rows`)."""
        assert self.delegate is not None
        with self.device.lock, work_on(self.device):
            self.check_user(user)
            self._begin_anew()
            self.delegate.states.write(dict(zip(self._sizes(len(tokens)), rows, strict=True)))
            self._advance(tokens)

    def _begin_anew(self) -> None:
        """Before the cache is written from its first row on."""
        self.position = 0
        self._overwrite()

    def check_rows(self) -> Mapping[int, int]:
        """The bytes of rows, of a program that has such."""
        if self.row_bytes is None:
            raise UnsupportedError(
                f"{self.program.file.name}: what this program leaves between calls is not a cache with one "
                "row for each token, so it is neither copied nor saved"
            )
        return self.row_bytes

    def _sizes(self, count: int) -> dict[int, int]:
        """Bytes of so many tokens in each cache."""
        return {id: count * size for id, size in self.check_rows().items()}

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

    def stepped(self, count: int) -> None:
        """So many steps of this sequence are about to be submitted by a plan over several (llm/batched.py),
        and so is nothing else before them."""
        self._overwrite()
        self.position += count

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

    def _constant(self, name: str, default: int | None) -> int | None:
        values = self._constants(name)
        return values[0] if values else default

    def _constants(self, name: str) -> tuple[int, ...]:
        if name not in self.program:
            return ()
        try:
            return tuple(integers("its results", self.program[name]()))
        except InputError as error:
            raise FormatError(f"{self.program.file.name}: {name} is no constant: {error}") from error


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    a, b = list(a), list(b)  # alike in type, so that Python compares them by itself
    same, unlike = 0, min(len(a), len(b)) + 1  # so many are alike, so many are not
    middle = unlike - 1  # first: most texts that are looked for are there, or share nothing
    while unlike - same > 1:
        if a[same:middle] == b[same:middle]:
            same = middle
        else:
            unlike = middle
        middle = (same + unlike) // 2
    return same
