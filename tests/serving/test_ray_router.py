"""ConversationRouter as Ray Serve calls it: replicas and queue lengths in Ray's own types, without a cluster.

scripts/test --ray
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra `ray`: scripts/test --ray")

from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve._private.request_router.common import ReplicaQueueLengthCache

from pteron.serving.cluster.deployment import ConversationRouter
from pteron.serving.cluster.routing import preferred_replica

REPLICAS = [
    SimpleNamespace(replica_id=ReplicaID(f"name{index}", DeploymentID("replica", "pteron")))
    for index in range(3)
]


def pending(session: str) -> Any:
    context = SimpleNamespace(should_backoff=False)
    return SimpleNamespace(routing_context=context, metadata=SimpleNamespace(session_id=session))


def test_the_preferred_replica_until_it_is_full() -> None:
    router = object.__new__(ConversationRouter)
    router._replica_queue_len_cache = ReplicaQueueLengthCache()
    router.initialize_state(busy=2)
    first = preferred_replica("one", [replica.replica_id.unique_id for replica in REPLICAS])
    (chosen,) = [replica for replica in REPLICAS if replica.replica_id.unique_id == first]

    def choose(request: Any) -> list[list[Any]]:
        found: list[list[Any]] = asyncio.run(router.choose_replicas(list(REPLICAS), request))
        return found

    asked = pending("one")
    assert choose(asked)[0] == [chosen]
    assert asked.routing_context.should_backoff  # Ray waits if all replicas are full
    router._replica_queue_len_cache.update(chosen.replica_id, 1)
    assert choose(pending("one"))[0] == [chosen]
    router._replica_queue_len_cache.update(chosen.replica_id, 2)
    best, last = choose(pending("one"))
    assert (chosen in best, last) == (False, [chosen])
    assert [len(rank) for rank in choose(pending(""))] == [2]
    assert [len(rank) for rank in choose(None)] == [2]
