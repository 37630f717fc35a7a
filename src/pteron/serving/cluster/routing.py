"""Which replica gets a request: the one that has its conversation, unless it has too much to do.

Ray Serve's own way, the less busy one of two that are picked at random, is for requests that belong to no
conversation, and for those whose replica is overloaded.
"""

from __future__ import annotations

import random

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from pteron.serving.cluster.conversation import favourite


class Sticky(RequestRouter):  # type: ignore[misc]  # Ray is not there when types are checked
    """Conversations are told apart by a request's session. The favourite of one is the same for every door
    without a word between them: of all replicas, the one whose name gives the greatest digest with it. Where
    replicas come and go, only conversations with those move."""

    def initialize_state(self, busy: int = 16) -> None:
        """From so many requests on a replica is overloaded."""
        self._busy = busy

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Replicas in ranks, the best first."""
        if not candidate_replicas:
            return []
        session = ""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # where none of these takes it
            session = pending_request.metadata.session_id
        pair = random.sample(candidate_replicas, min(2, len(candidate_replicas)))
        if not session:
            return [pair]
        known = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        first = known[favourite(session, list(known))]
        queued = self.replica_queue_len_cache.get(first.replica_id)
        return [pair] if queued is not None and queued >= self._busy else [[first], pair]
