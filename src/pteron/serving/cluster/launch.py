"""run: serve a model with Ray Serve, on this machine or on a cluster, until a signal."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import ray
from ray import serve

from pteron.errors import PteronError
from pteron.serving.cluster.deployment import build
from pteron.serving.cluster.options import Options, missing_resources
from pteron.serving.http.server import listening, signal_handler

_APPLICATION = "pteron"
_POLL_SECONDS = 0.2


def run(
    options: Options,
    *,
    address: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] = lambda address: None,
    waits: Callable[[str], None] = lambda why: None,
) -> None:
    """Serve a model with replicas until a signal arrives; running answers may finish.

    `address` is the address of a cluster, by default $RAY_ADDRESS. Without one, a cluster of only this
    machine is started, and stopped at the end. Every machine of a cluster listens at `host` and `port`. If
    replicas do not start, `waits` is called with the reason, because a cluster may get more machines later;
    with only this machine it is an error.
    """
    port = port or _free_port(host)
    # In this order: `ray.init` installs handlers that would end the process three seconds after a signal.
    with _connect(address, options.is_quiet) as is_own, _catch_signals() as ended:
        missing = missing_resources(options, _machines())
        if missing and is_own:
            raise PteronError(f"the model cannot be served on this machine: {missing}")
        try:
            serve.start(proxy_location="EveryNode", http_options={"host": host, "port": port})
            target = serve.RunTarget(build(options), name=_APPLICATION, route_prefix="/")
            serve.run_many([target], wait_for_applications_running=False)
        except RuntimeError as error:
            raise PteronError(f"the model cannot be served by Ray: {error}") from error
        try:
            if _wait_until_running(options, ended, waits):
                ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
                ended.wait()
        finally:
            serve.delete(_APPLICATION)


def _wait_until_running(options: Options, ended: threading.Event, waits: Callable[[str], None]) -> bool:
    """Wait until all replicas run; False if a signal comes first."""
    reported = ""
    while not ended.wait(_POLL_SECONDS):
        found = serve.status().applications[_APPLICATION]
        if found.status == "RUNNING":
            return True
        if found.status == "DEPLOY_FAILED":
            raise PteronError(f"the model cannot be served by Ray: {found.message}")
        messages = [each.message for each in found.deployments.values() if each.message]
        why = missing_resources(options, _machines()) or " ".join(messages)
        if why and why != reported:
            waits(why)
            reported = why
    return False


def _machines() -> list[dict[str, float]]:
    """The resources of each machine of the cluster."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextmanager
def _connect(address: str | None, is_quiet: bool) -> Iterator[bool]:
    """Connect to a cluster. True: it was started here, and is stopped with the context."""
    is_own = address is None and not os.environ.get("RAY_ADDRESS")
    try:
        try:
            ray.init(
                address="local" if is_own else address,
                include_dashboard=False if is_own else None,
                log_to_driver=not is_quiet,
                namespace=_APPLICATION,
            )
        except Exception as error:  # Ray raises plain Exceptions if a node does not start
            where = "on this machine" if is_own else f"at {address or os.environ['RAY_ADDRESS']}"
            raise PteronError(f"cannot connect to Ray {where}: {error}") from error
        yield is_own
    finally:
        if is_own and ray.is_initialized():
            serve.shutdown()
        ray.shutdown()


@contextmanager
def _catch_signals() -> Iterator[threading.Event]:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets; the second raises KeyboardInterrupt."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    with signal_handler(end):
        yield ended


def _free_port(host: str) -> int:
    with listening(host, 0) as listener:
        port: int = listener.getsockname()[1]
    return port
