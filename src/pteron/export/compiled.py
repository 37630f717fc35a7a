"""A lowered module as a callable: pytrees of torch tensors in, the module's pytree out."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.export.signature import Signature
from pteron.format.records import HostCall, KernelCall, ProgramFile
from pteron.format.source import contents, open_bytes
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.graph import Graph
from pteron.host.tensors import to_torch
from pteron.runtime import GpuTensor, Program, load

if TYPE_CHECKING:
    import torch

METHOD = "forward"


class CompiledModule:
    """A compiled module: `compiled(*inputs, **kwargs)` returns what the module would return.
    `print(compiled)` shows which operators run on the GPU and which on the host.

    If the module writes to a buffer, the program has its own copy, which persists between calls; the module's
    buffer does not change. `reset()` restores the values from compile time. Writes to inputs change the
    caller's tensors. Outputs never share memory with inputs.
    """

    def __init__(
        self,
        name: str,
        source: Path | bytes,
        signature: Signature,
        values: Mapping[str, torch.Tensor],
        device: Device | str | None,
        *,
        was_cached: bool,
    ) -> None:
        self.cache_file = source if isinstance(source, Path) else None
        self.program: Program = load(source, device=device)
        self._bytes = open_bytes(source).view  # stays valid if the cache removes the file
        metadata = self.program.file.metadata
        self._set(name, signature, metadata["states"], metadata["written"], values, was_cached)

    def _set(
        self,
        name: str,
        signature: Signature,
        states: Sequence[str],
        written: Sequence[int],
        values: Mapping[str, torch.Tensor],
        was_cached: bool,
    ) -> None:
        self.name = name
        self.was_cached = was_cached
        self.signature = signature
        self._written = tuple(written)
        self._initial = [values[name].detach().clone() for name in states]
        self._states: list[Any] = list(self._initial)
        self._lock = new_lock() if self._initial else contextlib.nullcontext()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        import torch

        given = self.signature.flatten(args, kwargs)
        leaves = self.signature.check(given)
        for position in self._written:
            _check_writable(self.signature.leaves[position].name, given[position])
        with self._lock:  # calls share the states
            outputs = self._run(leaves)
        with torch.no_grad():
            for position, value in zip(self._written, outputs, strict=False):
                _write(given[position], value)
        return self.signature.unflatten(outputs[len(self._written) :])

    def reset(self) -> None:
        """Restore the buffers that the module writes to, to their values at compile time."""
        with self._lock:
            self._states = list(self._initial)

    def _run(self, leaves: Sequence[Any]) -> list[Any]:
        """One call; new states stay on the GPU."""
        method, count = self.program[METHOD], len(self._states)
        outputs = method(*self._states, *leaves, on_gpu=count > 0)
        specs = method.outputs
        found = [
            as_torch(value, spec.dtype) for value, spec in zip(outputs[count:], specs[count:], strict=True)
        ]
        self._states = list(outputs[:count])
        return found

    @property
    def report(self) -> Report:
        """Which operators run on the GPU, which on the host, and why."""
        return make_report(self.program.file, self.program.graphs(METHOD))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program as a .pte file for `pteron.load`, where inputs and outputs are flat."""
        Path(path).write_bytes(contents(self._bytes))

    def close(self) -> None:
        """Free GPU memory."""
        self.program.close()

    def __enter__(self) -> CompiledModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pteron.CompiledModule {self.name}>"

    def __str__(self) -> str:
        kept = "not cached" if self.cache_file is None else str(self.cache_file)
        how = "from the cache" if self.was_cached else "lowered now"
        size = f"  program      {len(self._bytes) / 1e6:,.1f} MB, {kept} ({how})"
        return f"{self!r}\n{self.report}\n{size}"


def as_torch(value: Any, dtype: DType | None) -> torch.Tensor | Any:
    """An output as a torch tensor. It may be a GPU tensor, or an array if no input was a tensor."""
    if isinstance(value, GpuTensor):
        return value.torch()
    return to_torch(value, dtype) if isinstance(value, np.ndarray) and dtype is not None else value


def _check_writable(name: str, value: Any) -> None:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.flags.writeable):
        raise InputError(f"{name}: the module writes to it, but it is read-only")


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
            yield f"    delegate {index}   {counted(uses.total(), 'operator')}: {_listed(uses)}"
        names = f": {_listed(self.host)}" if hosted else ""
        share = hosted / max(1, hosted + delegated)
        yield f"  on the host  {counted(hosted, 'operator')}, {share:.0%}{names}"
        yield from (f"    {reason}" for reason in self.reasons)


def make_report(file: ProgramFile, graphs: Sequence[Graph]) -> Report:
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


def _listed(uses: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in uses.most_common())
