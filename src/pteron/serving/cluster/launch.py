"""run: an application of Ray Serve on this machine or on a cluster, until a signal ends it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import ray
from ray import serve

from pteron.errors import PteronError
from pteron.serving.cluster.deployment import build
from pteron.serving.cluster.options import Options
from pteron.serving.cluster.resources import shortage

_APPLICATION = "pteron"
_LOOK_SECONDS = 0.2


def run(
    options: Options,
    *,
    address: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] = lambda address: None,
    waits: Callable[[str], None] = lambda why: None,
) -> None:
    """Serve a model by replicas until a signal ends it; those that are under way then may finish.

    `address` is that of a cluster, by default what $RAY_ADDRESS says; without one, a cluster of this machine
    alone is made, and ends with this. Every machine of a cluster listens at `host` and `port`. `waits` is
    told what holds up the replicas: a cluster may get further machines, this one alone is refused.
    """
    port = port or _free_port(host)
    # In this order: Ray's own handlers, where they stay, end a process three seconds after a signal.
    with _connected(address, options.is_quiet) as is_mine, _signals() as ended:
        short = shortage(options, _machines())
        if short and is_mine:
            raise PteronError(f"the model cannot be served on this machine: {short}")
        try:
            serve.start(proxy_location="EveryNode", http_options={"host": host, "port": port})
            target = serve.RunTarget(build(options), name=_APPLICATION, route_prefix="/")
            serve.run_many([target], wait_for_applications_running=False)
        except RuntimeError as error:
            raise PteronError(f"the model cannot be served by Ray: {error}") from error
        try:
            if _is_running(options, ended, waits):
                ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
                ended.wait()
        finally:
            serve.delete(_APPLICATION)


def _is_running(options: Options, ended: threading.Event, waits: Callable[[str], None]) -> bool:
    """Wait until all replicas are there; False where a signal comes before."""
    told = ""
    while not ended.wait(_LOOK_SECONDS):
        found = serve.status().applications[_APPLICATION]
        if found.status == "RUNNING":
            return True
        if found.status == "DEPLOY_FAILED":
            raise PteronError(f"the model cannot be served by Ray: {found.message}")
        said = [each.message for each in found.deployments.values() if each.message]
        why = shortage(options, _machines()) or " ".join(said)
        if why and why != told:
            waits(why)
            told = why
    return False


def _machines() -> list[dict[str, float]]:
    """What each machine of the cluster has."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextmanager
def _connected(address: str | None, is_quiet: bool) -> Iterator[bool]:
    """A cluster to work on; True: it was made for this, and is ended with it."""
    is_mine = address is None and not os.environ.get("RAY_ADDRESS")
    try:
        try:
            ray.init(
                address="local" if is_mine else address,
                include_dashboard=False if is_mine else None,
                log_to_driver=not is_quiet,
                namespace=_APPLICATION,
            )
        except Exception as error:  # Ray raises plain ones where a node does not start
            where = "on this machine" if is_mine else f"at {address or os.environ['RAY_ADDRESS']}"
            raise PteronError(f"there is no cluster of Ray {where}: {error}") from error
        yield is_mine
    finally:
        if is_mine and ray.is_initialized():
            serve.shutdown()
        ray.shutdown()


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that a signal sets; a second one interrupts as usual."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as found:
        found.bind((host, 0))
        port: int = found.getsockname()[1]
    return port
