"""A device: an open adapter, and the buffers, weights and pipelines that programs on it share."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from pteron.errors import DeviceError
from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.buffers import Buffer, Buffers
from pteron.gpu.choose import choose, is_only_software, matrix_hint, software_sentence
from pteron.gpu.fork import check_not_forked, new_lock
from pteron.gpu.submit import checked, submit
from pteron.gpu.worker_pool import run_in_parallel
from pteron.ops import Weight
from pteron.system import trim_heaps
from pteron.wgsl import Module

_log = logging.getLogger(__name__)
COMPILERS = min(8, os.cpu_count() or 1)  # threads that compile kernels
# Host memory of a compiled kernel for each character of its text: machine code and what the driver keeps.
_BYTES_ON_CPU, _BYTES_ON_GPU = 128, 10
KernelKey: TypeAlias = tuple[str, bool]  # its text, and whether bounds are checked


@dataclass(slots=True)
class Upload:
    """A weight on the device. Its users are the `id()`s of `Weights._used` dicts."""

    buffer: Buffer
    users: set[int] = field(default_factory=set)


class Device(Buffers):
    """An open adapter. Programs on the same device share weights and kernels, and pass tensors to each other
    without a copy to the host. `close` is optional: the device is closed when the process ends.

    A kernel belongs to the recordings that asked for its pipeline, and is released with the last of them. The
    kernels that were asked for last are kept without an owner, up to `recent_kernel_bytes` of host memory:
    programs that are loaded in turns do not compile theirs again.

    The device opens in a background thread and the first use waits for it. Its `target` is known at once.
    """

    recent_kernel_bytes = 64 << 20
    _shared: dict[str, Device] = {}  # noqa: RUF012  # one open device per adapter, on purpose
    _opening = new_lock()

    def __init__(self, adapter: AdapterInfo) -> None:
        super().__init__(adapter)
        self.target = adapter.target
        self._pipelines: WeakValueDictionary[KernelKey, Any] = WeakValueDictionary()
        self._recent: OrderedDict[KernelKey, Any] = OrderedDict()  # the latest of them, owned or not
        self.compiled = 0  # kernels, since the device was opened
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
        if note := software_sentence(adapter) if is_only_software(adapter) else matrix_hint(adapter, webgpu):
            _log.info(note)
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
            self._recent.clear()
            self.uploads.clear()

    def upload(self, array: Any) -> Any:
        """A copy of an array or of a PyTorch tensor on the GPU: a GpuTensor, for calls that take it as an
        input without another upload. It has the element type of the array."""
        later_stage = import_module("pteron.runtime.conversion")  # by name: stages import earlier ones only
        return later_stage.uploaded(self, array)

    def pipeline(self, module: Module) -> Any:
        """The compute pipeline of a kernel."""
        return self.pipelines([module])[0]

    def pipelines(self, modules: Sequence[Module], meanwhile: Callable[[], None] | None = None) -> list[Any]:
        """The compute pipelines of kernels. New ones are compiled in threads, while `meanwhile` runs on this
        one; without the lock, unless the caller holds it."""
        keys = [(module.source, module.bounds_checks) for module in modules]
        wanted = dict(zip(keys, modules, strict=True))
        with self.lock:
            found = {key: known for key in wanted if (known := self._pipelines.get(key)) is not None}
        before = len(found)

        def find(key: KernelKey) -> None:
            found[key] = self._compile(wanted[key])

        try:
            new = [partial(find, key) for key in wanted if key not in found]
            run_in_parallel(new, COMPILERS, meanwhile)
        finally:  # after an error, too: the next try compiles the others
            with self.lock:
                self.compiled += len(found) - before
                self._pipelines.update(found)
                for key, pipeline in found.items():
                    self._recent[key] = pipeline
                    self._recent.move_to_end(key)
                self._forget_oldest()
        return [found[key] for key in keys]

    def count_new(self, modules: Iterable[Module]) -> int:
        """How many kernels it would have to compile."""
        with self.lock:
            keys = {(module.source, module.bounds_checks) for module in modules}
            return sum(key not in self._pipelines for key in keys)

    def bind_group(self, pipeline: Any, entries: Sequence[tuple[int, Buffer, int, int]], what: str) -> Any:
        """A bind group of a pipeline; an entry is (binding, buffer, offset, size). `what` is for errors."""
        given = [(binding, buffer._internal, offset, size) for binding, buffer, offset, size in entries]
        make, handle = self.library.bind_group, self.handle._internal
        return checked(self, self.library.report(what), make, handle, pipeline._internal, given)

    def release_kernels(self) -> None:
        """Free the memory of kernels that have lost their owners."""
        with self.lock:
            self._forget_oldest()
            if self.target.is_cpu and self.is_open:
                with suppress(DeviceError):  # the next call raises it
                    submit(self, [])  # Mesa destroys pipelines at the next submission
                trim_heaps()  # LLVM's threads leave many free blocks

    def kernel_bytes(self, kernel: KernelKey) -> int:
        """Host memory of a compiled kernel, estimated."""
        return len(kernel[0]) * (_BYTES_ON_CPU if self.target.is_cpu else _BYTES_ON_GPU)

    def _forget_oldest(self) -> None:
        size = sum(map(self.kernel_bytes, self._recent))
        while size > self.recent_kernel_bytes:
            size -= self.kernel_bytes(self._recent.popitem(last=False)[0])

    def _compile(self, module: Module) -> Any:
        with self.translate_errors(f"compiling kernel {module.kernel}"):
            shader = self.library.compile_shader(self.handle, module)
            return self.handle.create_compute_pipeline(
                label=module.kernel.name,
                layout="auto",
                compute={"module": shader, "entry_point": "main"},
            )
