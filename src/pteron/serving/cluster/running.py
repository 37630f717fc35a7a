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
from pteron.serving.cluster.building import build
from pteron.serving.cluster.options import Options

_APPLICATION = "pteron"


def run(
    options: Options,
    *,
    address: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a model by replicas until a signal ends it; those that are under way then may finish.

    `address` is that of a cluster, by default what $RAY_ADDRESS says; without one, a cluster of this machine
    alone is made, and ends with this. Every machine of a cluster listens at `host` and `port`.
    """
    port = port or _free_port(host)
    # In this order: Ray's own handlers, where they stay, end a process three seconds after a signal.
    with _connected(address, options.is_quiet), _signals() as ended:
        try:
            serve.start(proxy_location="EveryNode", http_options={"host": host, "port": port})
            serve.run(build(options), name=_APPLICATION, route_prefix="/")
        except RuntimeError as error:
            raise PteronError(f"the model cannot be served by Ray: {error}") from error
        try:
            ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
            ended.wait()
        finally:
            serve.delete(_APPLICATION)


@contextmanager
def _connected(address: str | None, is_quiet: bool) -> Iterator[None]:
    """A cluster to work on; what is made for this is ended with it."""
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
        yield
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
