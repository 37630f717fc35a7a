"""build: options -> an application of Ray Serve.

    serve.run(build(Options("folder", name="my-model", replicas=(1, 4), gpus=1)), name="pteron")

It has two deployments: replicas, which hold the model, and doors, which read requests and choose replicas.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from ray import get_gpu_ids, serve
from ray.exceptions import RayActorError, RayError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from pteron.serving.cluster.options import Options
from pteron.serving.cluster.proxy import Call, Message, Proxy
from pteron.serving.cluster.replica import Replica
from pteron.serving.cluster.routing import Sticky
from pteron.serving.http.errors import ApiError, api_error

_AHEAD = 4  # requests of a replica beyond its sequences, so that none is idle until the next one comes
_HEALTH_SECONDS = 5.0
_SHUTDOWN_SECONDS = 30.0
_WINDOW_SECONDS = 30.0  # over which requests are counted at most, in so many parts:
_WINDOW_PARTS = 3
_DOOR_REQUESTS = 4096  # of one door at once: they wait there, and cost a little memory


class OneReplica:
    """A Replica as Ray starts it, with the GPU that Ray has set aside."""

    def __init__(self, options: Options) -> None:
        # Vulkan heeds no CUDA_VISIBLE_DEVICES: the adapter is named by its place among all.
        gpus = get_gpu_ids() if options.gpus else []
        self._replica = Replica(options, str(gpus[0]) if gpus else None)

    def check_health(self) -> None:
        self._replica.check_health()

    async def answer(self, scope: Mapping[str, Any], body: bytes) -> AsyncGenerator[list[Message], None]:
        async for messages in self._replica.answer(scope, body):
            yield messages

    def __del__(self) -> None:
        if hasattr(self, "_replica"):
            self._replica.close()


class OneProxy:
    """A Proxy as Ray starts it."""

    def __init__(self, options: Options, replicas: DeploymentHandle) -> None:
        self._options = options
        self._handle = replicas.options(stream=True)

    def __serve_build_asgi_app__(self) -> Proxy:  # as `serve.ingress` calls it
        return Proxy(self._call, self._options.limits, told)

    def _call(self, key: str, scope: Mapping[str, Any], body: bytes) -> Call:
        handle = self._handle.options(session_id=key) if key else self._handle
        call: Call = handle.answer.remote(dict(scope), body)
        return call


def told(error: BaseException) -> ApiError | None:
    """What a client is told of what a call of a replica raises; None: another may answer instead."""
    if isinstance(error, BackPressureError):
        message = "as many requests wait as may; try again later"
        return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
    if isinstance(error, RayActorError | DeploymentUnavailableError):
        return None
    if not isinstance(error, RayError):
        return api_error(error)
    message = "the replica met an error that it did not foresee; its log has more"
    return ApiError(500, message, code="internal_error")


def build(options: Options) -> serve.Application:
    """An application that serves a model."""
    variables = dict(options.environment)
    environment = {"runtime_env": {"env_vars": variables}} if variables else {}
    replicas = serve.deployment(
        OneReplica,
        name="replica",
        max_ongoing_requests=options.sequences + _AHEAD,
        max_queued_requests=options.queue,
        health_check_period_s=_HEALTH_SECONDS,
        health_check_timeout_s=4 * _HEALTH_SECONDS,
        graceful_shutdown_timeout_s=_SHUTDOWN_SECONDS,
        ray_actor_options={"num_cpus": options.cpus, "num_gpus": options.gpus, **environment},
        request_router_config=RequestRouterConfig(
            request_router_class=Sticky, request_router_kwargs={"busy": options.sequences}
        ),
        **_scaling(options),
    )
    doors = serve.deployment(
        serve.ingress()(OneProxy),
        name="door",
        num_replicas=options.doors,
        max_ongoing_requests=_DOOR_REQUESTS,
        ray_actor_options={"num_cpus": 0},
    )
    return doors.bind(options, replicas.bind(options))


def _scaling(options: Options) -> dict[str, Any]:
    """How many replicas there are, as Ray is told."""
    least, most = options.range
    if least == most:
        return {"num_replicas": least}
    # A window longer than the wait would see requests that are over.
    window = min(_WINDOW_SECONDS, max(1.0, options.more_seconds))
    return {
        "autoscaling_config": {
            "min_replicas": least,
            "max_replicas": most,
            "target_ongoing_requests": options.sequences,
            "upscale_delay_s": options.more_seconds,
            "downscale_delay_s": options.fewer_seconds,
            "look_back_period_s": window,
            "metrics_interval_s": window / _WINDOW_PARTS,
        }
    }
