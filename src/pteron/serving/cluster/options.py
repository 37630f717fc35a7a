"""Options of replicas, and a check whether the machines of a cluster have room for them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pteron.errors import InputError
from pteron.llm.arguments import SEQUENCES_MAX, WAITING_MAX
from pteron.llm.cache.options import CacheType
from pteron.serving.http.limits import Limits

Machine = Mapping[str, float]  # the resources of a machine, by Ray's names


@dataclass(frozen=True, slots=True)
class Options:
    """A model, its access rules and the number of its replicas; sent to every machine of the cluster.

    `model` is a folder, a program or a name, the same on every machine. `replicas` is a number, or a range
    that scales with the requests: up after `more_seconds` with more than `sequences` requests per replica,
    down after `fewer_seconds` in which fewer replicas would have been enough. `gpus` and `cpus` are what Ray
    reserves for a replica; with a GPU the replica runs on that one.
    """

    model: str
    name: str
    more_models: Mapping[str, str] = field(default_factory=dict)  # by name; with any, all load at first use
    keep_alive: float | None = None  # seconds after which one of several models is unloaded
    tokenizer: str | None = None
    data: tuple[str, ...] = ()
    device: str | None = None
    digits: int | None = None
    products: str | None = None
    speculate: str | None = None
    adapters: Mapping[str, str] = field(default_factory=dict)  # paths by name, the same on every machine
    sequences: int = SEQUENCES_MAX
    cache_bytes: int | None = None
    context: int | None = None
    cache: CacheType | None = None
    rings: bool = True
    warm: bool = True
    queue: int = WAITING_MAX  # requests that wait for a replica; further ones get status 429
    replicas: int | tuple[int, int] = 1
    more_seconds: float = 30.0
    fewer_seconds: float = 600.0
    proxies: int = 1
    gpus: float = 0
    cpus: float = 1
    aliases: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    page: bool = True
    open_page: bool = True
    open_metrics: bool = False
    limits: Limits = field(default_factory=Limits)
    logs_prompts: bool = False
    is_quiet: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of a replica's process
    created: int = field(default_factory=lambda: int(time.time()))  # the same in all replicas' /v1/models

    def __post_init__(self) -> None:
        least, most = self.range
        if not 1 <= least <= most:
            raise InputError(
                f"replicas must be a number from 1 on or a range such as (1, 4), not {self.replicas!r}"
            )
        for name in ("sequences", "queue", "proxies"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("more_seconds", "fewer_seconds", "gpus", "cpus"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be a number of 0 or more, not {getattr(self, name)}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise InputError(f"a replica has a share of one GPU or whole GPUs, not {self.gpus:g}")
        if not self.name:
            raise InputError("the name of the model is missing")
        if self.more_models and (self.adapters or self.aliases):
            raise InputError("several models with Ray have no adapters and no aliases")

    @property
    def range(self) -> tuple[int, int]:
        """The minimum and maximum number of replicas."""
        return (self.replicas, self.replicas) if isinstance(self.replicas, int) else self.replicas

    @property
    def app_settings(self) -> dict[str, Any]:
        """The arguments of `create_app`, except the model and the log."""
        names = "name aliases api_keys limits page open_page open_metrics hosts origins"
        return {name: getattr(self, name) for name in names.split()}

    @property
    def model_settings(self) -> dict[str, Any]:
        """The arguments of `open_served`, except the path and the device."""
        names = (
            "tokenizer data digits products speculate adapters sequences cache_bytes context cache rings warm"
        )
        return {name: getattr(self, name) for name in names.split()}


def missing_resources(options: Options, machines: Sequence[Machine]) -> str | None:
    """The reason why the minimum number of replicas does not fit; None if it fits. Resources that are in use
    now count as free, because Ray waits for them."""
    least, _ = options.range
    needs = {"GPU": options.gpus, "CPU": options.cpus}
    fitting = sum(_fitting(needs, machine) for machine in machines)
    if fitting >= least:
        return None
    needed = " and ".join(_counted(name, count) for name, count in needs.items() if count)
    owned = "; ".join(
        " and ".join(_counted(name, machine.get(name, 0.0)) for name, count in needs.items() if count)
        for machine in machines
    )
    replicas = "a replica" if least == 1 else f"each of {least} replicas"
    have = "the machine has" if len(machines) == 1 else f"{len(machines)} machines have"
    room = f"{have} {owned or 'nothing'} by Ray's count"
    return f"{replicas} needs {needed}; there is room for {fitting:.0f}: {room}"


def _fitting(needs: Machine, machine: Machine) -> float:
    """How many replicas fit on one machine; infinite if they need nothing."""
    # Ten shares of 0.1 must fit, although 0.1 is not exact.
    return min(
        (math.floor(machine.get(name, 0.0) / need + 1e-6) for name, need in needs.items() if need),
        default=math.inf,
    )


def _counted(name: str, count: float) -> str:
    return f"no {name}" if not count else f"{count:g} {name}{'' if count <= 1 else 's'}"
