"""A delegate at work: its graph prepared for a device, its memory, and the plans made so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError, DtypeError, GraphError, InputError, MisfitError, ShapeError
from pteron.gpu import Buffer, Copy, Device, Memory, Recording, submit
from pteron.graph import Graph, Shape, SymInt, Tensor
from pteron.graph.values import numel
from pteron.ops import Target
from pteron.ops.operand import HostArray
from pteron.passes import Source, prepare
from pteron.plan import Plan, plan
from pteron.runtime.plan_cache import PlanCache, Shapes, plan_at
from pteron.runtime.tensors import Fetch, GpuTensor, HostResult, to_storage

Input: TypeAlias = HostArray | GpuTensor | int
Output: TypeAlias = GpuTensor | HostResult | int | None
_INT32 = np.iinfo(np.int32)


@dataclass(slots=True)
class Counters:
    """What a method has done so far. A decode loop plans once; a static graph never writes a parameter."""

    calls: int = 0
    plans: int = 0
    parameter_writes: int = 0
    dispatches: int = 0
    bytes_uploaded: int = 0
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What becomes of an output: its element type for the caller, and whether it stays on the GPU."""

    dtype: DType
    on_gpu: bool


class Session:
    """Runs one delegate graph, at any live shapes up to its maximum."""

    def __init__(
        self, graph: Graph, device: Device, counters: Counters, target: Target | None = None
    ) -> None:
        self.graph = graph
        self.device = device
        self.counters = counters
        # With another target than the device's own, kernels meant for other devices run here.
        self.prepared = prepare(graph, target or device.target)
        at_most = self._plan_at_maximum()
        try:
            self.memory = Memory(device, self.prepared.placement, graph.name)
        except DeviceError:
            self._blame_the_graph(at_most)
            raise
        self._plans = PlanCache(self.prepared, device, self.memory)
        try:
            if at_most is not None:  # compiles the kernels that most calls will need
                self._plans.keep(*at_most)
                self.counters.plans += 1
            self._run_once()
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Sequence[Input], wanted: Sequence[Wanted | None]) -> list[Output]:
        """Run the graph; nothing is waited for. An output that nobody wants is None."""
        shapes = tuple(map(_live_shape, self.graph.inputs, inputs))
        sources = self.prepared.sources
        values = {source.symbol: self._integer(source, inputs[source.input]) for source in sources}
        staged = self._staged(inputs)
        recording = self.ready(shapes, values)
        before = self._upload(staged)
        outputs, after = self._outputs(recording.plan, values, wanted)
        submit(self.device, [*before, recording, *after])
        return outputs

    def ready(self, shapes: Shapes, values: Mapping[int, int]) -> Recording:
        """The recording for these shapes, its live parameters set to these values, to be submitted next."""
        made = self._plans.made
        recording = self._plans.find(shapes, values)
        self.counters.plans += self._plans.made - made
        self.counters.dispatches += recording.dispatches
        if recording.refresh(values):
            self.counters.parameter_writes += 1
        return recording

    def buffer(self, tensor: Tensor) -> Buffer:
        """The buffer a tensor of the graph lies in."""
        return self.memory[self.prepared.placement.buffers[tensor.id]]

    def reset(self) -> None:
        """Bring caches and other states back to their initial values."""
        self.memory.reset_states()

    def close(self) -> None:
        self._plans.close()
        self.memory.close()

    # Plans --------------------------------------------------------------------------------------

    def _plan_at_maximum(self) -> tuple[Shapes, Plan, dict[int, int]] | None:
        """The plan for the maximum shapes, which proves that the graph fits together.

        Where live integers shape tensors, no value is known yet that must fit, so a misfit proves nothing.
        """
        shapes = tuple(t.shape_max if isinstance(t, Tensor) else None for t in self.graph.inputs)
        values = {source.symbol: 0 for source in self.prepared.sources}
        try:
            return shapes, plan_at(self.prepared, shapes, values), values
        except MisfitError as error:
            if error.is_certain:
                raise GraphError(str(error)) from None
            return None

    def _blame_the_graph(self, at_most: tuple[Shapes, Plan, dict[int, int]] | None) -> None:
        """Where memory did not suffice because a tensor claims more than its operator ever writes, say so."""
        if at_most is None:
            return
        limit, shapes = self.prepared.target.binding_bytes_max, at_most[1].shapes
        for call in self.prepared.each:
            for tensor in call.outputs:
                if (
                    isinstance(tensor, Tensor)
                    and numel(tensor.shape_max) * self.storage(tensor).itemsize > limit
                ):
                    computed = shapes.get(tensor.id, tensor.shape_max)
                    if numel(computed) < numel(tensor.shape_max):
                        raise GraphError(f"{self.graph.name}, {call.node} computes {list(computed)} at most")

    def _run_once(self) -> None:
        """Run the calls that depend on constants alone."""
        try:
            folded = plan(self.prepared, self.prepared.once, {}, {})
        except MisfitError as error:
            raise GraphError(str(error)) from None
        if folded.launches:
            recording = Recording(self.device, folded, self.memory, {})
            submit(self.device, [recording])
            recording.close()

    # Inputs -------------------------------------------------------------------------------------

    def _integer(self, source: Source, given: Input) -> int:
        """The live integer that an input holds."""
        where = f"{self.graph.name}, input {source.input}"
        array = np.asarray(given.numpy() if isinstance(given, GpuTensor) else given)
        if source.dim is not None:
            try:
                array = np.take(array, source.index, axis=source.dim)
            except IndexError:
                place = f"element {source.index} along dim {source.dim}"
                raise ShapeError(f"{where}: no {place} of shape {list(array.shape)}") from None
        if array.size != 1:
            raise ShapeError(f"{where}: expected a single integer, got shape {list(array.shape)}")
        value = int(array.reshape(())[()])
        if not _INT32.min <= value <= _INT32.max:
            raise InputError(f"{where}: {value} does not fit into 32 bits")
        return value

    def _staged(self, inputs: Sequence[Input]) -> list[tuple[Tensor, HostArray | GpuTensor]]:
        """Inputs in the element types of their buffers; what is refused is so before anything was written."""
        staged: list[tuple[Tensor, HostArray | GpuTensor]] = []
        for position, (tensor, given) in enumerate(zip(self.graph.inputs, inputs, strict=True)):
            if not isinstance(tensor, Tensor):
                continue
            where = f"{self.graph.name}, input {position}"
            storage = self.storage(tensor)
            if not isinstance(given, GpuTensor):
                array = np.asarray(given)
                given = to_storage(array, DType.of(array.dtype) or tensor.dtype, storage, where)
            elif given.storage is not storage:
                raise DtypeError(f"{where}: {given!r} holds {given.storage}, {tensor} takes {storage}")
            staged.append((tensor, given))
        return staged

    def _upload(self, staged: Sequence[tuple[Tensor, HostArray | GpuTensor]]) -> list[Copy]:
        """Bring inputs into their buffers: host arrays now, GPU tensors by the copies returned."""
        copies = []
        for tensor, given in staged:
            if isinstance(given, GpuTensor):
                copies.append(Copy(given.buffer, self.buffer(tensor), given.nbytes))
            elif given.nbytes:
                self.device.write(self.buffer(tensor), given)
                self.counters.bytes_uploaded += given.nbytes
        return copies

    # Outputs ------------------------------------------------------------------------------------

    def _outputs(
        self, plan: Plan, values: dict[int, int], wanted: Sequence[Wanted | None]
    ) -> tuple[list[Output], list[Copy]]:
        """Handles for the outputs, and the copies that fill them.

        Every output is copied away from its place, since the graph will use that memory again: to a buffer of
        its own if it stays on the GPU, else to one staging buffer that all of them share.
        """
        pairs = list(zip(self.graph.outputs, wanted, strict=True))
        sizes = [
            self._bytes(value, plan) if isinstance(value, Tensor) and want and not want.on_gpu else 0
            for value, want in pairs
        ]
        fetched = sum(1 for value, want in pairs if isinstance(value, Tensor) and want and not want.on_gpu)
        fetch = Fetch(self.device.readback(sum(map(_aligned, sizes))), fetched) if fetched else None
        self.counters.bytes_read += sum(sizes)
        outputs: list[Output] = []
        copies: list[Copy] = []
        offset = 0
        for (value, want), size in zip(pairs, sizes, strict=True):
            if isinstance(value, SymInt):
                outputs.append(plan.integers[value.id].evaluate(values))
            elif want is None:
                outputs.append(None)
            elif want.on_gpu:
                kept = self._keep(value, plan, want.dtype)
                copies.append(Copy(self.buffer(value), kept.buffer, kept.nbytes))
                outputs.append(kept)
            else:
                assert fetch is not None
                copies.append(Copy(self.buffer(value), fetch.staging, size, offset))
                shape = plan.shapes[value.id]
                outputs.append(HostResult(fetch, offset, shape, want.dtype, self.storage(value)))
                offset += _aligned(size)
        return outputs, copies

    def _keep(self, tensor: Tensor, plan: Plan, dtype: DType) -> GpuTensor:
        buffer = self.device.create_buffer(self._bytes(tensor, plan), f"{self.graph.name} output {tensor}")
        return GpuTensor(self.device, buffer, plan.shapes[tensor.id], dtype, self.storage(tensor))

    def _bytes(self, tensor: Tensor, plan: Plan) -> int:
        return numel(plan.shapes[tensor.id]) * self.storage(tensor).itemsize

    def storage(self, tensor: Tensor) -> Storage:
        """The element type a tensor has on the GPU."""
        return Storage.of(tensor.dtype, shader_f16=self.prepared.target.shader_f16)


def _aligned(size: int) -> int:
    return -(-size // 16) * 16


def _live_shape(value: Tensor | SymInt, given: Input) -> Shape | None:
    """An input's live shape, within its maximum."""
    if isinstance(value, SymInt):
        return None
    shape = given.shape if isinstance(given, (np.ndarray, GpuTensor)) else ()
    fits = len(shape) == len(value.shape_max) and all(
        live <= most for live, most in zip(shape, value.shape_max, strict=True)
    )
    if not fits:
        raise ShapeError(f"expected a shape up to {list(value.shape_max)}, got {list(shape)} for {value}")
    return tuple(int(size) for size in shape)
