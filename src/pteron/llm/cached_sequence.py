"""A sequence of tokens in the cache of a method: where it stands, which of them it holds, and who uses it.

Enters what was run through the method; leaves which tokens need not be run again, and what they have left in
the cache: rows, to be copied to another sequence, saved and brought back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError, UnsupportedError
from pteron.llm.cache_layout import row_bytes
from pteron.llm.reentrancy import device_guard
from pteron.runtime import Method, Program

Read: TypeAlias = tuple[list[int], list[bytes]]  # tokens, and what they have left behind in each cache


class CachedSequence:
    """What a method's cache holds, which lives on the GPU.

    `position` is where the next tokens go; `tokens` are those that the cache holds for certain, whatever
    failed or was interrupted on the way: where the method itself did, none.
    """

    def __init__(self, program: Program, method: Method, context: int) -> None:
        self.program = program
        self.method = method
        self.context = context
        self.delegate = method.sole_delegate
        self.device = program.device
        self.position = 0
        self.tokens: list[int] = []
        self._user = object()
        self._is_lost = False  # a call failed, and nobody knows what it left in the cache
        self._rows: tuple[Mapping[int, int] | None] | None = None  # once it was asked for

    # Who uses it --------------------------------------------------------------------------------

    def claim(self) -> object:
        """Have a new user, who goes on from what the cache holds for certain; the one before is refused from
        now on. After a call that failed that is nothing."""
        with self.device.lock, device_guard(self.device):
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
        with self.device.lock, device_guard(self.device):
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
        with self.device.lock, device_guard(self.device):
            self._claim()
            self.position = 0
            self.tokens.clear()

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

    def stepped(self, count: int) -> None:
        """These steps are about to be submitted by a plan over several sequences (llm/batched_model.py), and
        nothing else is submitted before them."""
        self._overwrite()
        self.position += count

    def check_room(self, count: int) -> None:
        """Refuse more tokens than the context has room for behind the position."""
        if self.context and self.position + count > self.context:
            raise InputError(
                f"{self.program.file.name}: {self.position} + {count} tokens exceed the context, "
                f"which holds {self.context}"
            )

    # What tokens have left behind in it -----------------------------------------------------------

    @property
    def sequence_bytes(self) -> int:
        """GPU memory of one more sequence."""
        return self.method.state_bytes

    @property
    def row_bytes(self) -> Mapping[int, int] | None:
        """What a token takes in each of the caches, by the state's id, where all that a sequence leaves
        behind are rows (`llm/cache_layout.py`): these can be copied, written to a file and brought back."""
        if self._rows is None:
            self._rows = (row_bytes(self.program, self.method, self.context),)
        return self._rows[0]

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

    def copy(self, source: CachedSequence, ids: Sequence[int], user: object) -> int:
        """Have in this cache, in place of all it holds, what another sequence's holds of a text, from its
        first token on; how many tokens that are. Nothing is waited for.

        The other may be in use: what it has submitted comes before the copy, what it will submit after it,
        and it writes behind the tokens that it holds for certain, or gives them up before it does.
        """
        assert self.delegate is not None
        assert source.delegate is not None
        with self.device.lock, device_guard(self.device):
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
        with self.device.lock, device_guard(self.device):
            kept = self.tokens[: self.certain if ids is None else self.holds(ids)]
            return kept, self.delegate.states.read(self._sizes(len(kept)))

    def put(self, tokens: Sequence[int], rows: Sequence[npt.NDArray[np.uint8]], user: object) -> None:
        """Have in this cache, in place of all it holds, what tokens have left in another (`rows`)."""
        assert self.delegate is not None
        with self.device.lock, device_guard(self.device):
            self.check_user(user)
            self._begin_anew()
            self.delegate.states.write(dict(zip(self._sizes(len(tokens)), rows, strict=True)))
            self._advance(tokens)

    def _begin_anew(self) -> None:
        """Before the cache is written from its first row on."""
        self.position = 0
        self._overwrite()


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
