"""What replicas of a model are made of, as it travels to the machines that make them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pteron.errors import InputError
from pteron.llm.arguments import SEQUENCES_MAX, WAITING_MAX
from pteron.serving.http.limits import Limits


@dataclass(frozen=True, slots=True)
class Options:
    """A model, who may use it, and how many of it there are.

    `model` is a folder, a program or a name, the same on every machine. `replicas` are so many, or from the
    first number to the second as requests need them: one more where each has had more than `sequences` for
    `more_seconds`, one less where fewer would have done for `fewer_seconds`.
    `gpus` and `cpus` are what Ray sets aside for a replica; with a GPU the replica works on that one.
    """

    model: str
    name: str
    tokenizer: str | None = None
    data: tuple[str, ...] = ()
    device: str | None = None
    digits: int | None = None
    sequences: int = SEQUENCES_MAX
    cache_bytes: int | None = None
    queue: int = WAITING_MAX  # requests that wait for a replica before others are told to come back
    replicas: int | tuple[int, int] = 1
    more_seconds: float = 30.0
    fewer_seconds: float = 600.0
    doors: int = 1
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
    environment: Mapping[str, str] = field(default_factory=dict)  # of a replica's process
    created: int = field(default_factory=lambda: int(time.time()))  # as all replicas tell it

    def __post_init__(self) -> None:
        least, most = self.range
        if not 1 <= least <= most:
            raise InputError(f"replicas are at least 1 and rise, as 2 or (1, 4), not {self.replicas!r}")
        for name in ("sequences", "queue", "doors"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("more_seconds", "fewer_seconds", "gpus", "cpus"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be a number of 0 or more, not {getattr(self, name)}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise InputError(f"a replica has a share of one GPU or whole ones, not {self.gpus:g}")
        if not self.name:
            raise InputError("a model is served by a name, which is missing")

    @property
    def range(self) -> tuple[int, int]:
        """The least replicas and the most."""
        return (self.replicas, self.replicas) if isinstance(self.replicas, int) else self.replicas
