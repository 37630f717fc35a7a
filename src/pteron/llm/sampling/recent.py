"""What samplers of a model share, kept while streams come and go: the next of its form finds it made."""

from __future__ import annotations

from collections import OrderedDict

from pteron.runtime.session import Session

SESSIONS_MAX = 16  # each takes the memory of a few rows of logits


class Recent:
    """The sessions of the samplers made last, no more than SESSIONS_MAX of them."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def keep(self, session: Session) -> None:
        """Keep a session, and let go of the one that was used longest ago where there are too many."""
        self._sessions[id(session)] = session
        self._sessions.move_to_end(id(session))
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def clear(self) -> None:
        self._sessions.clear()
