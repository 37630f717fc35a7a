"""Models: several models in one server. Each is loaded when a request first names it, and unloaded when it
has not been used for a while, or when another one needs its memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from anyio import to_thread

from pteron.errors import InputError, OutOfMemory
from pteron.system import give_back_memory

if TYPE_CHECKING:
    from pteron.llm.engine import Engine
    from pteron.serving.encoder import Embedder
    from pteron.serving.speech import Transcriber

Service = TypeVar("Service")  # what serves a loaded model
_CHECK_SECONDS = (0.05, 1.0)  # least and most between two looks for models without requests


@dataclass(frozen=True)
class ModelSource:
    """A model that can be loaded: its name, then its aliases, a context in which it is loaded, and the names
    of its LoRA adapters."""

    names: tuple[str, ...]
    open: Callable[[], AbstractContextManager[Engine | Embedder | Transcriber]]
    adapters: tuple[str, ...] = ()


@dataclass(eq=False)
class ServedModel(Generic[Service]):
    """A model of a server, loaded or not."""

    source: ModelSource
    service: Service | None = None  # None: it is not loaded
    users: int = 0  # requests that run
    last_used: float = 0.0
    opened: ExitStack = field(default_factory=ExitStack)

    def release(self) -> None:
        """End the use by a request."""
        self.users -= 1
        self.last_used = time.monotonic()


class Models(Generic[Service]):
    """`serve` makes the service of a model that has been loaded, with its names. A model that no request has
    used for `keep_alive` seconds is unloaded; None: never."""

    def __init__(
        self,
        sources: Sequence[ModelSource],
        serve: Callable[[Engine | Embedder | Transcriber, tuple[str, ...]], Service],
        keep_alive: float | None,
    ) -> None:
        self.served = [ServedModel[Service](source) for source in sources]
        self._by_name = {
            name: model for model in self.served for name in (*model.source.names, *model.source.adapters)
        }
        names = [name for source in sources for name in (*source.names, *source.adapters)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"two models have the name {twice!r}: give one another, as in NAME=MODEL")
        self._serve = serve
        self._keep_alive = keep_alive
        self._loading = asyncio.Lock()  # one model is loaded or unloaded at a time

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    @property
    def loaded(self) -> list[Service]:
        return [model.service for model in self.served if model.service is not None]

    def find(self, name: str) -> ServedModel[Service]:
        """The model that a name, an alias or an adapter belongs to."""
        return self._by_name[name]

    async def open(self, name: str) -> tuple[Service, ServedModel[Service]]:
        """A model, loaded now if it is not; `release` ends its use."""
        model = self._by_name[name]
        model.users += 1  # it stays loaded while it is waited for
        try:
            if model.service is None:  # a loaded model does not wait while another one is loaded
                # A task of its own: no thread can be stopped, so a load that runs outlives its request.
                await asyncio.shield(asyncio.ensure_future(self._load(model)))
        except BaseException:
            model.release()
            raise
        assert model.service is not None
        return model.service, model

    async def _load(self, model: ServedModel[Service]) -> None:
        async with self._loading:
            if model.service is not None or not model.users:  # the requests may be cancelled meanwhile
                return
            try:
                model.service = await to_thread.run_sync(self._load_now, model)
            except OutOfMemory:
                if not await self._unload([other for other in self.served if other is not model]):
                    raise
                model.service = await to_thread.run_sync(self._load_now, model)

    def _load_now(self, model: ServedModel[Service]) -> Service:
        with ExitStack() as opened:
            service = self._serve(opened.enter_context(model.source.open()), model.source.names)
            model.opened = opened.pop_all()
        return service

    async def _unload(self, models: Sequence[ServedModel[Service]]) -> bool:
        """Unload those that no request uses; whether there are any."""
        unused = [model for model in models if model.service is not None and not model.users]
        for model in unused:
            model.service = None  # of all, before the first wait: a request may come meanwhile
        for model in unused:
            await to_thread.run_sync(_close, model)
        return bool(unused)

    async def unload_idle(self) -> None:
        """Runs until it is cancelled."""
        while self._keep_alive is not None:
            least, most = _CHECK_SECONDS
            await asyncio.sleep(min(most, max(least, self._keep_alive)))
            before = time.monotonic() - self._keep_alive
            async with self._loading:
                await self._unload([model for model in self.served if model.last_used < before])

    async def close(self) -> None:
        """Unload all models, after the load that runs."""
        async with self._loading:
            await to_thread.run_sync(self.close_now)

    def close_now(self) -> None:
        """Unload all models, on this thread."""
        self._keep_alive = None  # ends `unload_idle`
        for model in self.served:
            model.service = None
            model.opened.close()


def _close(model: ServedModel[Any]) -> None:
    model.opened.close()
    give_back_memory()
