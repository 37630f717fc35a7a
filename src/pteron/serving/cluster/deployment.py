"""build: options -> a Ray Serve application.

    serve.run(build(Options("folder", name="my-model", replicas=(1, 4), gpus=1)), name="pteron")

It has two deployments: replicas, which hold the model, and proxies, which read requests and choose replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import get_gpu_ids, serve
from ray.exceptions import RayActorError, RayError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from pteron.serving.cluster.options import Options
from pteron.serving.cluster.proxy import Proxy, ProxyCall
from pteron.serving.cluster.replica import Replica
from pteron.serving.cluster.routing import rank_replicas
from pteron.serving.http.errors import ApiError, api_error

_SPARE_REQUESTS = (
    4  # requests that a replica holds beyond its sequences, so that a free sequence has work at once
)
_HEALTH_SECONDS = 5.0
_SHUTDOWN_SECONDS = 30.0
_WINDOW_SECONDS = 30.0  # the longest window over which requests are counted
_WINDOW_PARTS = 3
_PROXY_REQUESTS = 4096  # at once in one proxy; a waiting request costs little memory


class ConversationRouter(RequestRouter):  # type: ignore[misc]  # types are checked without Ray
    """Ray Serve's router of requests to replicas. A request's session id is its conversation key."""

    def initialize_state(self, busy: int = 16) -> None:
        """A replica with `busy` requests or more is overloaded."""
        self._busy = busy

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Replicas in ranks, the best first."""
        key = ""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # wait before retrying if all are full
            key = pending_request.metadata.session_id
        known = {replica.replica_id.unique_id: replica for replica in candidate_replicas}

        def queued(name: str) -> int | None:
            count: int | None = self.replica_queue_len_cache.get(known[name].replica_id)
            return count

        ranks = rank_replicas(key, list(known), queued, self._busy)
        return [[known[name] for name in rank] for rank in ranks]


class ReplicaDeployment(Replica):
    """A Replica on the GPU that Ray has reserved for it."""

    def __init__(self, options: Options) -> None:
        # Vulkan ignores CUDA_VISIBLE_DEVICES, so the adapter is named by its number among all.
        gpus = get_gpu_ids() if options.gpus else []
        super().__init__(options, str(gpus[0]) if gpus else None)

    def __del__(self) -> None:
        if hasattr(self, "_app"):  # the last attribute that __init__ sets
            self.close()


class ProxyDeployment:
    def __init__(self, options: Options, replicas: DeploymentHandle) -> None:
        self._options = options
        self._handle = replicas.options(stream=True)

    def __serve_build_asgi_app__(self) -> Proxy:  # `serve.ingress` calls this
        return Proxy(self._call, self._options.limits, map_error)

    def _call(self, key: str, scope: Mapping[str, Any], body: bytes) -> ProxyCall:
        handle = self._handle.options(session_id=key) if key else self._handle
        call: ProxyCall = handle.answer.remote(dict(scope), body)
        return call


def map_error(error: BaseException) -> ApiError | None:
    """The error for the client when a call of a replica fails; None: another replica may succeed."""
    if isinstance(error, BackPressureError):
        message = "too many requests are waiting; try again later"
        return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
    if isinstance(error, RayActorError | DeploymentUnavailableError):
        return None
    if not isinstance(error, RayError):
        return api_error(error)
    return ApiError(500, "unexpected error in the replica; its log has details", code="internal_error")


def build(options: Options) -> serve.Application:
    """A Ray Serve application that serves a model."""
    variables = dict(options.environment)
    environment = {"runtime_env": {"env_vars": variables}} if variables else {}
    replicas = serve.deployment(
        ReplicaDeployment,
        name="replica",
        max_ongoing_requests=options.sequences + _SPARE_REQUESTS,
        max_queued_requests=options.queue,
        health_check_period_s=_HEALTH_SECONDS,
        health_check_timeout_s=4 * _HEALTH_SECONDS,
        graceful_shutdown_timeout_s=_SHUTDOWN_SECONDS,
        ray_actor_options={"num_cpus": options.cpus, "num_gpus": options.gpus, **environment},
        request_router_config=RequestRouterConfig(
            request_router_class=ConversationRouter, request_router_kwargs={"busy": options.sequences}
        ),
        **_scaling(options),
    )
    proxies = serve.deployment(
        serve.ingress()(ProxyDeployment),
        name="proxy",
        num_replicas=options.proxies,
        max_ongoing_requests=_PROXY_REQUESTS,
        ray_actor_options={"num_cpus": 0},
    )
    return proxies.bind(options, replicas.bind(options))


def _scaling(options: Options) -> dict[str, Any]:
    """The number of replicas, as arguments of `serve.deployment`."""
    least, most = options.range
    if least == most:
        return {"num_replicas": least}
    # A window longer than the delay would count requests that have ended.
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
