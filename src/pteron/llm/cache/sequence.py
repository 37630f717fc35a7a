"""A sequence in the KV cache of a method: its position, the tokens that the cache holds, and its user.

In: tokens that ran through the method. Out: which tokens need not run again, and their cache rows, which can
be copied to another sequence, saved and restored.

A method with recurrent layers cannot be rewound (`can_rewind`): its state is that after all tokens it has
read. It serves a prompt that extends these tokens. A snapshot of the state before the last chunk of the last
prompt serves prompts that extend the tokens up to there, such as the next turn of a conversation. Any other
prompt starts at position 0, where layers take their state as zeros, and states that other nodes write are
reset.

Layers with a sliding window keep the rows of the last tokens only, in rings. A sequence can go back a few
tokens; where a prompt would continue further back, it is read again from position 0.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from pteron.errors import InputError, OutOfMemory, UnsupportedError
from pteron.llm.cache.layout import Rows, choice_state, must_be_reset, recurrent_states, rings, row_layout
from pteron.runtime import Method, Program


@dataclass(frozen=True, slots=True)
class CachedRows:
    """Tokens, and their rows in each cache. `written` is the number of tokens after which rings lost rows, at
    least that of the tokens."""

    tokens: Sequence[int]
    written: int
    rows: Sequence[bytes | memoryview]


class CachedSequence:
    """The contents of a KV cache on the GPU.

    The next token is written at `position`. `tokens` lists the tokens that the cache is certain to hold, even
    after an error or an interrupt. After an error in the method itself the list is empty.
    """

    def __init__(self, program: Program, method: Method, context: int) -> None:
        self.program = program
        self.method = method
        self.context = context
        self.delegate = method.sole_delegate
        self.device = program.device
        self.position = 0
        self.tokens: list[int] = []
        self.adapters: tuple[str, ...] = ()  # that the program has, by name, see `llm/adapters.py`
        self.adapter: str | None = None  # of the tokens in the cache
        self._choice = choice_state(*program.graphs(method.name)) if self.delegate else None
        self._user = object()
        self._is_lost = False  # a call failed, and the contents of the cache are unknown
        self._recurrent = recurrent_states(program, method)
        self._must_be_reset = must_be_reset(program, method)
        self._snapshot = 0  # the position of the copy of recurrent states; 0: none
        self._rings = rings(program, method, context)
        self._written = 0  # tokens, after which rings have the rows of the last ones
        self._layout: tuple[Mapping[int, Rows] | None] | None = None  # computed at first use

    # The user -----------------------------------------------------------------------------------

    def claim(self) -> object:
        """Make the caller the user of the sequence, which continues from the tokens that the cache is certain
        to hold (none after a failed call). From now on, calls of the previous user raise an error."""
        with self.device.lock:
            self._user = user = object()
            if self._is_lost:
                self.tokens.clear()
                self._snapshot = 0
                self.method.reset()
                self._is_lost = False
                self._write_adapter()
            self._forget_uncertain()
            return user

    def _forget_uncertain(self) -> None:
        """Go back to the tokens that the cache is certain to hold, or to the snapshot."""
        if self.position > len(self.tokens) and not self.can_rewind:
            self._restore_snapshot()
        if not self._can_continue(len(self.tokens)):
            self.tokens.clear()
        self.position = min(self.position, len(self.tokens))

    @property
    def can_rewind(self) -> bool:
        """Whether the sequence can go back, at least by the tokens of one call: no layer is recurrent."""
        return not self._recurrent

    def _can_continue(self, position: int) -> bool:
        """Whether rings have all rows that the token at a position sees."""
        return not position or all(ring.has_window(position, self._written) for ring in self._rings)

    def take_snapshot(self, user: object) -> None:
        """Copy the recurrent states at the position. Rows of KV caches need none."""
        with self.device.lock:
            self.check_user(user)
            is_new = len(self.tokens) == self.position != self._snapshot
            if self._recurrent and is_new and self.delegate is not None:
                with suppress(OutOfMemory):
                    self.delegate.keep_states(self._recurrent)
                    self._snapshot = self.position

    def _restore_snapshot(self) -> None:
        """Go back to the snapshot, or to an empty sequence."""
        del self.tokens[self._snapshot :]
        if self._snapshot and self.delegate is not None:
            self.delegate.restore_states(self._recurrent)

    def check_adapter(self, name: str | None) -> None:
        """Raise if the model was not loaded with this adapter; None is always right."""
        if name is not None and name not in self.adapters:
            known = ", ".join(self.adapters)
            hint = f"known are {known}" if known else "the model was loaded without any"
            raise InputError(f"unknown adapter {name!r}: {hint}")

    def use_adapter(self, name: str | None) -> None:
        """Choose the adapter of the tokens that follow, or none. Tokens of another adapter are dropped from
        the cache."""
        self.check_adapter(name)
        with self.device.lock:
            if self.adapter != name:
                self.position = self._snapshot = 0
                self.tokens.clear()
                self.adapter = name
                self._write_adapter()

    def _write_adapter(self) -> None:
        if self._choice is not None:
            assert self.delegate is not None
            number = 0 if self.adapter is None else 1 + self.adapters.index(self.adapter)
            self.delegate.states.write({self._choice: np.array([number], np.int32).view(np.uint8)})

    def is_used_by(self, user: object) -> bool:
        return self._user is user

    def check_user(self, user: object) -> None:
        """Raise if another user has claimed the sequence. The caller holds the device lock."""
        if self._user is not user:
            raise InputError(
                f"{self.program.file.name}: something else was begun on this sequence of tokens; generations "
                "that run at the same time need a LanguageModel.sequence() each"
            )

    def resume(self, ids: Sequence[int], user: object) -> int:
        """Move to the end of the prefix that the cache shares with `ids`; returns its length.

        The prefix never includes the last of `ids`, even if the cache holds it: that token must run again to
        get its logits.
        """
        with self.device.lock:
            self.check_user(user)
            self.position = self._reusable(self.tokens, ids[:-1])
            if not self.can_rewind and 0 < self.position < len(self.tokens):
                self._restore_snapshot()
            return self.position

    def _reusable(self, tokens: Sequence[int], ids: Sequence[int]) -> int:
        """How many of `tokens`, which the cache holds, a prompt can continue from: those that it shares, or
        none if a ring has lost rows; without rewinding all, those before the snapshot, or none."""
        shared = shared_length(tokens, ids)
        if not self.can_rewind and shared < len(tokens):
            shared = self._snapshot if self._snapshot <= shared else 0
        return shared if self._can_continue(shared) else 0

    def rewind(self, user: object) -> None:
        """End this user's work: move back to the end of the tokens that the cache is certain to hold. Does
        nothing if another user has claimed the sequence."""
        with self.device.lock:
            if self._user is user:
                self._forget_uncertain()
                self.position = len(self.tokens)

    def reset(self) -> None:
        """Make the sequence empty. The rows are not cleared: rows beyond the position are never read."""
        with self.device.lock:
            self.claim()
            self.position = self._snapshot = 0
            self.tokens.clear()

    # The tokens in the cache --------------------------------------------------------------------

    def record_token(self, position: int, token: int) -> None:
        """Record the token that a step on the GPU has read at a position."""
        if len(self.tokens) == position:
            self.tokens.append(token)

    def _before_write(self, count: int) -> None:
        """Called before up to `count` tokens are written at the position: later rows become uncertain, and
        rings lose their oldest rows."""
        del self.tokens[self.position :]
        end = self.position + count
        self._written = max(self._written, end) if self.position else end
        self._snapshot = self._snapshot if self._snapshot <= self.position else 0
        if self._must_be_reset and not self.position:
            self.method.reset()
            self._write_adapter()
        self.method.accept_states()  # discards the results of a failed call

    def _advance(self, chunk: Sequence[int]) -> None:
        """Record a submitted chunk. The GPU runs submissions in order, so any later one finds it in the
        cache."""
        if len(self.tokens) == self.position:
            self.tokens.extend(chunk)
        self.position += len(chunk)

    @property
    def certain(self) -> int:
        """How many tokens the cache is certain to hold."""
        return 0 if self._is_lost else len(self.tokens)

    def cached_prefix(self, ids: Sequence[int], adapter: str | None = None) -> int:
        """The length of the prefix of `ids` that the cache holds, and can continue from; 0 if it is that of
        another adapter."""
        with self.device.lock:
            return 0 if self.adapter != adapter else self._reusable(self.tokens[: self.certain], ids)

    def record_steps(self, count: int) -> None:
        """Record `count` steps that a batch (`llm/engine/batched_model.py`) submits right after this call."""
        self._before_write(count)
        self.position += count

    @contextmanager
    def writing(self, tokens: Sequence[int]) -> Generator[None, None, None]:
        """Record tokens that are submitted within; `rewind_to` may drop some of them later."""
        self._before_write(len(tokens))
        yield
        self._advance(tokens)

    def rewind_to(self, position: int, user: object) -> None:
        """Return to an earlier position of the last call, as if later tokens had not run. Does nothing if
        another user has claimed the sequence."""
        with self.device.lock:
            if self._user is user:
                self.position = min(self.position, position)
                del self.tokens[position:]

    def check_room(self, count: int) -> None:
        """Raise if `count` more tokens exceed the context."""
        if self.context and self.position + count > self.context:
            raise InputError(
                f"{self.program.file.name}: {self.position} + {count} tokens exceed the context, "
                f"which holds {self.context}"
            )

    # The rows of the cache ------------------------------------------------------------------------

    @property
    def sequence_bytes(self) -> int:
        """GPU memory of one more sequence, with a copy of its recurrent states."""
        states = self.delegate.executable.states if self.delegate else {}
        return self.method.state_bytes + sum(states[id].bytes for id in self._recurrent if id in states)

    @property
    def row_layout(self) -> Mapping[int, Rows] | None:
        """The rows of each cache, by the state's id; None if the sequence has other state, so that rows
        cannot be copied or saved (`llm/cache/layout.py`)."""
        if self._layout is None:
            self._layout = (row_layout(self.program, self.method, self.context),)
        return self._layout[0]

    def check_rows(self) -> Mapping[int, Rows]:
        """`row_layout`, or an error."""
        if self.row_layout is None:
            raise UnsupportedError(
                f"{self.program.file.name}: the state of this program is not a KV cache with one row per "
                "token, so it cannot be copied or saved"
            )
        return self.row_layout

    def _written_for(self, count: int) -> int:
        """The number of tokens that a copy of `count` tokens counts as written: more if rings have lost
        rows."""
        is_lost = any(ring.rows < self._written for ring in self._rings)
        return self._written if is_lost else count

    def _sizes(self, count: int, written: int) -> dict[int, int]:
        return {id: rows.held(count, written) for id, rows in self.check_rows().items()}

    def copy(self, source: CachedSequence, ids: Sequence[int], user: object) -> int:
        """Replace this cache by the prefix of `ids` that another sequence's cache holds, without waiting;
        returns its length.

        The source may be in use. Its earlier submissions run before the copy and its later ones after it, and
        it never overwrites tokens that it is certain to hold.
        """
        assert self.delegate is not None
        assert source.delegate is not None
        with self.device.lock:
            self.check_user(user)
            kept = list(ids[: source.cached_prefix(ids, self.adapter)])
            written = source._written_for(len(kept))
            self._restart(written)
            self.delegate.states.copy(source.delegate.states, self._sizes(len(kept), written))
            self._advance(kept)
        return len(kept)

    def rows(self, ids: Sequence[int] | None = None) -> CachedRows:
        """The tokens that the cache is certain to hold, or the prefix of `ids` among them, and their rows."""
        assert self.delegate is not None
        with self.device.lock:
            kept = self.tokens[: self.certain if ids is None else self.cached_prefix(ids, self.adapter)]
            written = self._written_for(len(kept))
            return CachedRows(kept, written, self.delegate.states.read(self._sizes(len(kept), written)))

    def restore(self, cached: CachedRows, user: object) -> None:
        """Replace this cache by other tokens and their rows."""
        assert self.delegate is not None
        with self.device.lock:
            self.check_user(user)
            self._restart(cached.written)
            rows = (np.frombuffer(each, np.uint8) for each in cached.rows)
            self.delegate.states.write(dict(zip(self.check_rows(), rows, strict=True)))
            self._advance(cached.tokens)

    def _restart(self, written: int) -> None:
        """Called before the cache is replaced by that after `written` tokens."""
        self.position = 0
        self._before_write(written)


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    a, b = list(a), list(b)  # both lists, so that slices compare in C
    same, different = 0, min(len(a), len(b)) + 1  # bisection: `same` tokens are equal, `different` are not
    middle = different - 1  # tried first: most prompts share everything or nothing
    while different - same > 1:
        if a[same:middle] == b[same:middle]:
            same = middle
        else:
            different = middle
        middle = (same + different) // 2
    return same
