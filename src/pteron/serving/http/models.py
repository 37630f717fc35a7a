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
from pteron.serving.http.errors import ApiError
from pteron.system import give_back_memory

if TYPE_CHECKING:
    from pteron.embeddings.encoder import Embedder
    from pteron.llm.engine import Engine
    from pteron.speech import Transcriber

Loaded = TypeVar("Loaded")  # a model that is loaded
_CHECK_SECONDS = (0.05, 1.0)  # least and most between two looks for models without requests


@dataclass(frozen=True)
class ModelSource:
    """A model that can be loaded: its name, then its aliases, a context in which it is loaded, and the names
    of its LoRA adapters."""

    names: tuple[str, ...]
    open: Callable[[], AbstractContextManager[Engine | Embedder | Transcriber]]
    adapters: tuple[str, ...] = ()


@dataclass(eq=False)
class ServedModel(Generic[Loaded]):
    """A model of a server, loaded or not."""

    source: ModelSource
    loaded: Loaded | None = None
    users: int = 0  # requests that run
    last_used: float = 0.0
    opened: ExitStack = field(default_factory=ExitStack)

    def release(self) -> None:
        """End the use by a request."""
        self.users -= 1
        self.last_used = time.monotonic()


class Models(Generic[Loaded]):
    """`serve` makes what requests use from a model that has been loaded, and its names. A model that no
    request has used for `keep_alive` seconds is unloaded; None: never."""

    def __init__(
        self,
        sources: Sequence[ModelSource],
        serve: Callable[[Engine | Embedder | Transcriber, tuple[str, ...]], Loaded],
        keep_alive: float | None,
    ) -> None:
        self.served = [ServedModel[Loaded](source) for source in sources]
        self._by_name = {
            name: model for model in self.served for name in (*model.source.names, *model.source.adapters)
        }
        names = [name for source in sources for name in (*source.names, *source.adapters)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"two models have the name {twice!r}: give one another, as in NAME=MODEL")
        self._serve = serve
        self._keep_alive = keep_alive
        self.is_closed = False
        self._loading = asyncio.Lock()  # one model is loaded or unloaded at a time

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    @property
    def loaded(self) -> list[Loaded]:
        return [model.loaded for model in self.served if model.loaded is not None]

    def find(self, name: str) -> ServedModel[Loaded]:
        """The model that a name, an alias or an adapter belongs to."""
        return self._by_name[name]

    async def open(self, name: str) -> tuple[Loaded, ServedModel[Loaded]]:
        """A model, loaded now if it is not; `release` ends its use."""
        model = self._by_name[name]
        model.users += 1  # it stays loaded while it is waited for
        try:
            if model.loaded is None:  # a loaded model does not wait while another one is loaded
                # A task of its own: no thread can be stopped, so a load that runs outlives its request.
                await asyncio.shield(asyncio.ensure_future(self._load(model)))
            if model.loaded is None:
                raise ApiError(503, "the server is shutting down", code="shutting_down")
        except BaseException:
            model.release()
            raise
        return model.loaded, model

    def load_all(self) -> None:
        """Load all models, on this thread."""
        for model in self.served:
            model.loaded = self._load_now(model)

    async def _load(self, model: ServedModel[Loaded]) -> None:
        async with self._loading:
            if model.loaded is not None or not model.users or self.is_closed:  # all may change meanwhile
                return
            try:
                model.loaded = await to_thread.run_sync(self._load_now, model)
            except OutOfMemory:
                if not await self._unload([other for other in self.served if other is not model]):
                    raise
                model.loaded = await to_thread.run_sync(self._load_now, model)

    def _load_now(self, model: ServedModel[Loaded]) -> Loaded:
        with ExitStack() as opened:
            loaded = self._serve(opened.enter_context(model.source.open()), model.source.names)
            model.opened = opened.pop_all()
        return loaded

    async def _unload(self, models: Sequence[ServedModel[Loaded]]) -> bool:
        """Unload those that no request uses; whether there are any."""
        unused = [model for model in models if model.loaded is not None and not model.users]
        for model in unused:
            model.loaded = None  # of all, before the first wait: a request may come meanwhile
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
        """Unload all models, after the load that runs; no other begins."""
        self.is_closed = True
        async with self._loading:
            await to_thread.run_sync(self.close_now)

    def close_now(self) -> None:
        """Unload all models, on this thread."""
        self.is_closed, self._keep_alive = True, None  # the latter ends `unload_idle`
        for model in self.served:
            model.loaded = None
            model.opened.close()


def _close(model: ServedModel[Any]) -> None:
    model.opened.close()
    give_back_memory()
