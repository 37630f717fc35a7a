"""A cluster of Ray, all of it on this machine, and tests of one server that hold for its application too.

A module that imports this needs Ray, and says so before.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import httpx
import ray
from http_fixtures import until
from ray import serve
from ray.cluster_utils import Cluster

from pteron.serving.cluster import Options, build

PATIENCE = 120.0  # seconds; a longer wait means a hang
SLOW = {  # a busy machine must not fail Ray's health checks
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_ASKING = {"server", "client", "templated"}  # fixtures through which tests use the shared server


class Served:
    """An application of a cluster, with the interface of http_fixtures.Running less its per-process parts."""

    def __init__(self, address: str, application: str) -> None:
        self.address = address
        self.application = application
        self.http = httpx.Client(base_url=address, timeout=PATIENCE)

    def loads(self) -> list[tuple[int, int]]:
        """(running, waiting) requests, sampled over sessions: each session is routed to one replica, so a
        replica may appear several times."""
        found = [self.http.get("/health", headers={"X-Session-Id": str(each)}).json() for each in range(12)]
        return [(load["running"], load["waiting"]) for load in found]

    def settle(self) -> None:
        until(lambda: set(self.loads()) == {(0, 0)}, PATIENCE)

    def replicas(self) -> list[Any]:
        """The replicas that are running."""
        from ray.serve.context import _get_global_client

        found = ray.get(_get_global_client()._controller._all_running_replicas.remote(), timeout=PATIENCE)
        return [
            replica
            for deployment, listed in found.items()
            if (deployment.app_name, deployment.name) == (self.application, "replica")
            for replica in listed
        ]


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """The address of Ray Serve on a cluster of `nodes` nodes, each with one CPU to reserve."""
    os.environ.update(SLOW)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100 << 20}
    made = started(lambda: Cluster(True, head_node_args={**node, "include_dashboard": False}))
    try:
        for _ in range(nodes - 1):
            started(lambda: made.add_node(**node))
        ray.init(address=made.address, log_to_driver=False)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield f"http://127.0.0.1:{port}"
        serve.shutdown()
    finally:
        ray.shutdown()
        made.shutdown()


@contextmanager
def application(address: str, name: str, options: Options, prefix: str = "/") -> Iterator[Served]:
    """A model on a cluster for as long as it is needed."""
    serve.run(build(options), name=name, route_prefix=prefix)
    made = Served(address + prefix.rstrip("/"), name)
    try:
        yield made
    finally:
        made.http.close()
        serve.delete(name)


def started(start: Callable[[], Any]) -> Any:
    """Start a node, with retries: on a busy machine it may exceed Ray's limit of 30 seconds."""
    for _ in range(2):
        with suppress(Exception):  # Ray raises a plain Exception
            return start()
    return start()


def shared(module: ModuleType, left_out: Mapping[str, str]) -> type:
    """The tests of a module that use the shared server, as a class that runs them against the server of the
    importing module. `left_out` maps excluded tests to the reason."""
    found = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    tests = {
        name: staticmethod(test)
        for name, test in found.items()
        if name not in left_out and _ASKING & inspect.signature(test).parameters.keys()
    }
    unknown = left_out.keys() - found.keys()
    assert not unknown, f"{module.__name__} has no {', '.join(unknown)}"
    return type(module.__name__, (), tests)
