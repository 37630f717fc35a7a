"""A device: an open adapter, and the buffers, weights and pipelines that programs on it share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.buffers import Buffer, Buffers
from pteron.gpu.choose import choose, is_only_software, software_sentence
from pteron.gpu.fork import check_not_forked, new_lock
from pteron.gpu.worker_pool import run_in_parallel
from pteron.ops import Weight
from pteron.wgsl import Module

_log = logging.getLogger(__name__)
COMPILERS = min(8, os.cpu_count() or 1)  # threads that compile kernels


@dataclass(slots=True)
class Upload:
    """A weight on the device. Its users are the `id()`s of `Weights._used` dicts."""

    buffer: Buffer
    users: set[int] = field(default_factory=set)


class Device(Buffers):
    """An open adapter. Programs on the same device share weights and kernels, and pass tensors to each other
    without a copy to the host. `close` is optional: the device is closed when the process ends.

    The device opens in a background thread and the first use waits for it. Its `target` is known at once.
    """

    _shared: dict[str, Device] = {}  # noqa: RUF012  # one open device per adapter, on purpose
    _opening = new_lock()

    def __init__(self, adapter: AdapterInfo) -> None:
        super().__init__(adapter)
        self.target = adapter.target
        self._pipelines: dict[tuple[str, bool], Any] = {}  # by source and whether it is checked
        self.uploads: dict[Weight, Upload] = {}  # by content: programs share them

    @classmethod
    def open(cls, device: Device | str | None = None, *, webgpu: str | None = None) -> Device:
        """`device` itself if it is a Device; otherwise the shared device of the adapter it names, in the
        library that `webgpu` names: "auto", "wgpu" or "dawn"."""
        opened = cls.begin(device, webgpu=webgpu)
        opened.check_open()
        return opened

    @classmethod
    def begin(cls, device: Device | str | None = None, *, webgpu: str | None = None) -> Device:
        """`open` without waiting: an error is raised at the first use."""
        if isinstance(device, Device):
            return device
        adapter = choose(device, webgpu)
        if is_only_software(adapter):
            _log.info(software_sentence(adapter))
        return cls._of(adapter)

    @classmethod
    def _of(cls, adapter: AdapterInfo) -> Device:
        """The shared device of an adapter; a new one if the last is closed or lost."""
        check_not_forked()
        key = f"{adapter.library.name} {adapter.index} {adapter.backend} {adapter.name}"
        with cls._opening:
            if key not in cls._shared or not cls._shared[key].is_usable:
                cls._shared[key] = cls(adapter)
            return cls._shared[key]

    def reopen(self) -> Device:
        """This device, or a new one of the same adapter if this is closed or lost."""
        check_not_forked()
        return self if self.is_usable else self._of(self.adapter)

    def close(self) -> None:
        """Release the device; programs on it can no longer run."""
        with self.lock:
            super().close()
            self._pipelines.clear()
            self.uploads.clear()

    def pipeline(self, module: Module) -> Any:
        """The compute pipeline of a kernel, compiled once per device."""
        key = module.source, module.bounds_checks
        if key not in self._pipelines:
            self._pipelines[key] = self._compile(module)
        return self._pipelines[key]

    def compile(self, modules: Iterable[Module], meanwhile: Callable[[], None] | None = None) -> None:
        """Compile new kernels in threads, while `meanwhile` runs on this one. The caller holds the lock."""
        wanted = {(module.source, module.bounds_checks): module for module in modules}
        new = [module for key, module in wanted.items() if key not in self._pipelines]
        run_in_parallel([partial(self.pipeline, module) for module in new], COMPILERS, meanwhile)

    def _compile(self, module: Module) -> Any:
        with self.translate_errors(f"compiling kernel {module.kernel}"):
            shader = self.library.compile_shader(self.handle, module)
            return self.handle.create_compute_pipeline(
                label=module.kernel.name,
                layout="auto",
                compute={"module": shader, "entry_point": "main"},
            )
