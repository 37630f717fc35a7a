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

PATIENCE = 120.0  # seconds that nothing takes: who waits longer hangs
SLOW = {  # a busy machine is no sick one
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_ASKING = {"server", "client", "templated"}  # fixtures by which tests ask the server that all share


class Served:
    """An application of a cluster: what tests know of http_fixtures.Running, less what is of one process."""

    def __init__(self, address: str, application: str) -> None:
        self.address = address
        self.application = application
        self.http = httpx.Client(base_url=address, timeout=PATIENCE)

    def loads(self) -> list[tuple[int, int]]:
        """Requests that run and that wait, of any replica and more than once: a session goes to its own."""
        found = [self.http.get("/health", headers={"X-Session-Id": str(each)}).json() for each in range(12)]
        return [(load["running"], load["waiting"]) for load in found]

    def settle(self) -> None:
        until(lambda: set(self.loads()) == {(0, 0)}, PATIENCE)

    def replicas(self) -> list[Any]:
        """Those that run now."""
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
    """A node that starts within Ray's 30 seconds, which a busy machine may not manage at once."""
    for _ in range(2):
        with suppress(Exception):  # a plain one is what Ray raises
            return start()
    return start()


def shared(module: ModuleType, left_out: Mapping[str, str]) -> type:
    """The tests of a module that ask a server, as a class whose server is the one of where it stands. Those
    left out come with the reason; tests that ask none, or make a server of their own, are none of them."""
    found = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    tests = {
        name: staticmethod(test)
        for name, test in found.items()
        if name not in left_out and _ASKING & inspect.signature(test).parameters.keys()
    }
    unknown = left_out.keys() - found.keys()
    assert not unknown, f"{module.__name__} has no {', '.join(unknown)}"
    return type(module.__name__, (), tests)
