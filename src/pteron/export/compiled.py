"""A lowered module as a callable: pytrees of torch tensors in, the module's pytree out."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.export.signature import Signature
from pteron.extras import check_installed
from pteron.format.program import COMPILED_METHOD as METHOD
from pteron.format.records import HostCall, KernelCall
from pteron.format.source import contents, open_bytes
from pteron.gpu import Device
from pteron.host.tensors import HostResult, to_torch
from pteron.runtime import GpuTensor, Program, load
from pteron.runtime import Sequence as CallSequence
from pteron.runtime.loaded_method import Precision
from pteron.runtime.pending import Pending, in_order

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Loading:
    """How programs are loaded: these arguments of `pteron.load`."""

    device: Device | str | None = None
    digits: int | None = None
    products: str | None = None

    def __post_init__(self) -> None:
        Precision.chosen(self.digits, self.products)  # an error now, not after the lowering

    def load(self, source: Path | bytes) -> Program:
        return load(source, device=self.device, digits=self.digits, products=self.products)


class CompiledModule(ABC):
    """A compiled module: `compiled(*inputs, **kwargs)` returns what the module would return.
    `print(compiled)` shows which operators run on the GPU and which on the host.

    If the module writes to a buffer, the compiled module has its own copy, which persists between calls; the
    module's buffer does not change. `reset()` restores the values from compile time, and `sequence()` returns
    the same module with another copy. Writes to inputs change the caller's tensors. Outputs never share
    memory with inputs.
    """

    name: str  # of the module's class
    was_cached: bool
    cache_file: Path | None = None  # of the program

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        device: Device | str | None = None,
        *,
        digits: int | None = None,
        products: str | None = None,
    ) -> CompiledModule:
        """A module that `save` wrote, to be called as before. Import the classes of its inputs and outputs
        before: an output of an unknown class becomes a named tuple. Loading needs PyTorch, not ExecuTorch."""
        check_installed(("torch",), "CompiledModule.load, unlike pteron.load,", "host")
        return WholeModule(Path(path), Loading(device, digits, products))

    @abstractmethod
    def submit(self, *args: object, **kwargs: object) -> Pending[Any]:
        """Start a call without waiting for the GPU, as `Method.submit` does. `result()` of what it returns
        gives the outputs, and writes to inputs."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.submit(*args, **kwargs).result()

    def map(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The outputs of a call for each batch, as `Method.map` gives them: a batch is a tuple of positional
        arguments, or the only argument."""
        calls = (batch if isinstance(batch, tuple) else (batch,) for batch in batches)
        return in_order(lambda call: self.submit(*call), calls)

    @abstractmethod
    def reset(self) -> None:
        """Restore the buffers that the module writes to, to their values at compile time."""

    @abstractmethod
    def sequence(self) -> CompiledModule:
        """The same module with its own copy of the buffers that it writes to, at first with their values at
        compile time: one for each of several streams. Programs, weights and plans are shared; closing the
        sequence frees its copy."""

    @property
    @abstractmethod
    def program(self) -> Program:
        """The program, to be called with flat inputs."""

    @property
    @abstractmethod
    def report(self) -> Report:
        """Which operators run on the GPU, which on the host, and why."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program as a .pte file, for `CompiledModule.load` and for `pteron.load`, where inputs and
        outputs are flat."""

    def export_web(self, folder: str | os.PathLike[str], **options: Any) -> Any:
        """Write a folder of static files that runs the module in a browser; `options` are those of
        `pteron.export_web`, and so is the result. The module must be one program without operators on the
        host."""
        later_stage = import_module("pteron.web")  # by name: stages import earlier ones only
        return later_stage.export_web(self.program, folder, **{"name": self.name, **options})

    @abstractmethod
    def close(self) -> None:
        """Free GPU memory."""

    def __enter__(self) -> CompiledModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pteron.CompiledModule {self.name}>"


class TracedModule(CompiledModule):
    """A compiled module that torch.export has traced: its inputs are known."""

    def __init__(
        self,
        name: str,
        signature: Signature,
        written: Sequence[int],  # positions of inputs that the module writes to
        *,
        was_cached: bool,
    ) -> None:
        self.name, self.signature, self.was_cached = name, signature, was_cached
        self._written = tuple(written)

    def submit(self, *args: object, **kwargs: object) -> Pending[Any]:
        import torch

        given = self.signature.flatten(args, kwargs)
        leaves = self.signature.check(given)
        for position in self._written:
            _check_writable(self.signature.leaves[position].name, given[position])
        if (shared := self.shared_inputs(given)) is not None:
            written, other = (self.signature.leaves[position].name for position in shared)
            raise InputError(f"the module writes to {written}, which shares memory with {other}: pass copies")
        pending = self._run(leaves)

        def outputs() -> Any:
            values = pending.result()
            with torch.no_grad():
                for position, value in zip(self._written, values, strict=False):
                    _write(given[position], value)
            return self.signature.unflatten(values[len(self._written) :])

        return Pending(outputs)

    def shared_inputs(self, given: Sequence[Any]) -> tuple[int, int] | None:
        """The positions of an input that the module writes to, and of another in the same memory."""
        for written in self._written:
            for position, value in enumerate(given):
                if position != written and _shares_memory(value, given[written]):
                    return written, position
        return None

    @abstractmethod
    def _run(self, leaves: Sequence[Any]) -> Pending[Sequence[Any]]:
        """The new values of written inputs, and the outputs."""


class WholeModule(TracedModule):
    """A compiled module that is one program."""

    def __init__(
        self,
        source: Path | bytes,
        loading: Loading,
        signature: Signature | None = None,
        *,
        origin: str = "loaded",  # or "lowered now" or "from the cache"
    ) -> None:
        self.cache_file = source if isinstance(source, Path) and origin != "loaded" else None
        self._origin = f"{source if isinstance(source, Path) else 'not cached'} ({origin})"
        self._program = loading.load(source)
        self._states: Program | CallSequence = self._program
        self._bytes = open_bytes(source).view  # stays valid if the cache removes the file
        file = self._program.file
        signature = signature or Signature.from_metadata(file.metadata)
        super().__init__(
            str(file.metadata.get("module", "")),
            signature,
            file.metadata["written"],
            was_cached=origin == "from the cache",
        )

    def _run(self, leaves: Sequence[Any]) -> Pending[Sequence[Any]]:
        method = self._states[METHOD]
        pending, specs = method.submit(*leaves), method.outputs

        def outputs() -> list[Any]:
            pairs = zip(pending.result(), specs, strict=True)
            return [as_torch(value, spec.dtype) for value, spec in pairs]

        return Pending(outputs)

    def reset(self) -> None:
        self._states[METHOD].reset()

    def sequence(self) -> CompiledModule:
        other = copy(self)
        other._states = self._program.sequence()
        return other

    @property
    def program(self) -> Program:
        return self._program

    @property
    def report(self) -> Report:
        return make_report(self._program)

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_bytes(contents(self._bytes))

    def close(self) -> None:
        self._states.close()

    def __str__(self) -> str:
        size = f"  program      {len(self._bytes) / 1e6:,.1f} MB, {self._origin}"
        return f"{self!r}\n{self.report}\n{size}"


def as_torch(value: Any, dtype: DType | None) -> torch.Tensor | Any:
    """An output as a torch tensor. It may be on the GPU, or an array if no input was a tensor."""
    if isinstance(value, GpuTensor):
        return value.torch()
    if isinstance(value, HostResult):
        return to_torch(value.own(), value.dtype)
    return to_torch(value, dtype) if isinstance(value, np.ndarray) and dtype is not None else value


def _check_writable(name: str, value: Any) -> None:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.flags.writeable):
        raise InputError(f"{name}: the module writes to it, but it is read-only")


def _shares_memory(a: Any, b: Any) -> bool:
    import torch

    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.may_share_memory(a, b)
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.numel() and b.numel())


def _write(target: Any, value: torch.Tensor) -> None:
    if isinstance(target, np.ndarray):
        np.copyto(target, value.numpy())
    else:
        target.copy_(value)


_NO_WORK = {"et_vk.prepack.default"}  # uploads a weight


@dataclass(frozen=True)
class Report:
    """Which operators of a compiled module run on the GPU, which on the host, and why."""

    partitioner: str
    delegates: tuple[Counter[str], ...]  # uses of each operator
    host: Counter[str]  # uses of each operator outside delegates
    reasons: tuple[HostCall, ...]  # why these run on the host

    @classmethod
    def of_parts(cls, parts: Sequence[Report], in_torch: Counter[str], why: Callable[[str], str]) -> Report:
        """Of several programs, and the operators that PyTorch runs between them."""
        reasons = [HostCall(name, uses, why(name)) for name, uses in in_torch.most_common()]
        return cls(
            parts[0].partitioner if parts else "",
            tuple(uses for part in parts for uses in part.delegates),
            sum((part.host for part in parts), in_torch),
            (*reasons, *(reason for part in parts for reason in part.reasons)),
        )

    @property
    def share(self) -> float:
        """The share of operators that run on the GPU, from 0 to 1."""
        delegated = sum(uses.total() for uses in self.delegates)
        return delegated / max(1, delegated + self.host.total())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        delegated, hosted = sum(uses.total() for uses in self.delegates), self.host.total()
        parts = counted(len(self.delegates), "delegate")
        yield f"  on the GPU   {counted(delegated, 'operator')}, {self.share:.0%}, in {parts}"
        for index, uses in enumerate(self.delegates):
            yield f"    delegate {index}   {counted(uses.total(), 'operator')}: {listed(uses)}"
        names = f": {listed(self.host)}" if hosted else ""
        share = hosted / max(1, hosted + delegated)
        yield f"  on the host  {counted(hosted, 'operator')}, {share:.0%}{names}"
        yield from (f"    {reason}" for reason in self.reasons)


def make_report(program: Program) -> Report:
    file, graphs = program.file, program.graphs(METHOD)
    delegates = (Counter(node.name for node in graph.nodes if node.name not in _NO_WORK) for graph in graphs)
    host = Counter(
        record.operators[call.operator]
        for record in file.methods
        for call in record.instructions
        if isinstance(call, KernelCall)
    )
    return Report(file.metadata["partitioner"], tuple(delegates), host, file.host_calls)


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(uses: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in uses.most_common())
