"""Sticky: Ray Serve's way to choose a replica, by what `choosing` says of names."""

from __future__ import annotations

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from pteron.serving.cluster.replica_choice import ranks


class Sticky(RequestRouter):  # type: ignore[misc]  # Ray is not there when types are checked
    """Conversations are told apart by a request's session, which a door names."""

    def initialize_state(self, busy: int = 16) -> None:
        """From so many requests on a replica is overloaded."""
        self._busy = busy

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Replicas in ranks, the best first."""
        session = ""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # where none of these takes it
            session = pending_request.metadata.session_id
        known = {replica.replica_id.unique_id: replica for replica in candidate_replicas}

        def queued(name: str) -> int | None:
            count: int | None = self.replica_queue_len_cache.get(known[name].replica_id)
            return count

        chosen = ranks(session, list(known), queued, self._busy)
        return [[known[name] for name in rank] for rank in chosen]
