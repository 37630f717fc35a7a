"""A prepared graph for one kind of device: the buffers of its tensors, and a plan for any live shapes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pteron.errors import DeviceError, GraphError, MisfitError
from pteron.graph import Shape, SymInt, Tensor
from pteron.graph.values import numel
from pteron.ops import Target
from pteron.passes import Prepared, place
from pteron.plan.copy_elision import CopyElision
from pteron.plan.executable import Executable, Port, Shapes, SymbolPort, TensorPort
from pteron.plan.layers import Layers, layers_of
from pteron.plan.plan import Plan
from pteron.plan.planner import Planning
from pteron.plan.verify import check_memory


class Compiled:
    """Makes plans of a graph. The executable keeps some of them."""

    def __init__(self, prepared: Prepared, target: Target, *, may_exceed: bool = False) -> None:
        """`may_exceed`: the device may be too small for the maximum shapes, as calls may be smaller."""
        self.prepared = prepared
        self.target = target
        self.placement = place(prepared, target)
        self._elision = CopyElision(prepared, self.placement)
        check_memory(prepared.graph.name, prepared.calls, self.placement, target)
        self._folded: Mapping[int, Shape] = {}
        self._at_maximum: Mapping[int, Shape] | None = None  # shapes, once they are known
        self._may_exceed = may_exceed
        self.excess: DeviceError | None = None  # why the device is too small for the maximum shapes
        once = self._planning({}, {})
        try:
            once.add_all(prepared.once)
        except MisfitError as error:  # constants alone are at fault
            raise GraphError(str(error)) from None
        self._folded = once.plain_shapes  # the shapes of folded constants; the file may claim others
        self.executable = Executable(
            name=prepared.graph.name,
            target=target,
            inputs=tuple(map(self._port, prepared.graph.inputs)),
            outputs=tuple(map(self._port, prepared.graph.outputs)),
            sources=prepared.sources,
            slots=tuple(min(size, target.slot_bytes_max) for size in self.placement.slot_bytes),
            states=self.placement.states,
            once=once.finish(),
        )

    def plan(self, shapes: Shapes, values: Mapping[int, int]) -> Plan:
        """The plan for these input shapes and values of live integers. Dims among the values (`dim_id`) are
        live: the plan holds for other sizes of them, too."""
        return self._planned(shapes, values).finish()

    def shapes(self, shapes: Shapes, values: Mapping[int, int]) -> Mapping[int, Shape]:
        """The shape of every tensor, by id, for these input shapes."""
        if self._at_maximum is not None and shapes == self.shapes_max and not any(values.values()):
            return self._at_maximum
        return self.walk(shapes, values, only_shapes=True).plain_shapes

    @property
    def shapes_max(self) -> Shapes:
        return tuple(
            value.shape_max if isinstance(value, Tensor) else None for value in self.prepared.graph.inputs
        )

    def plan_at_maximum(self) -> tuple[Plan, dict[int, int]] | None:
        """The plan for the maximum shapes, which proves that the shapes are consistent, and its live
        integers.

        If live integers shape tensors, their values are unknown here, so a mismatch proves nothing. If the
        device is too small for them and may be, `excess` says why.
        """
        values = {source.symbol: 0 for source in self.prepared.sources}
        try:
            planned = self._planned(self.shapes_max, values)
            self._at_maximum = planned.plain_shapes
            self._check_claims(self._at_maximum)
            return planned.finish(), values
        except DeviceError as error:
            if not self._may_exceed:
                raise
            self.excess = error
        except MisfitError as error:
            if error.is_certain:
                raise GraphError(str(error)) from None
        return None

    def walk(self, shapes: Shapes, values: Mapping[int, int], *, only_shapes: bool = False) -> Planning:
        """The calls of a run, planned one by one: with the shapes of all tensors and the dispatches of
        launches."""
        planning = self._started(shapes, values, only_shapes=only_shapes)
        planning.add_all(self.prepared.each)
        return planning

    def _planned(self, shapes: Shapes, values: Mapping[int, int]) -> Planning:
        """A walk that repeats layers; their dispatches show the tensors of others."""
        planning = self._started(shapes, values)
        position, calls = 0, self.prepared.each
        for layers in self._layers:
            planning.add_all(calls[position : layers.first])
            planning.add_layers(layers)
            position = layers.end
        planning.add_all(calls[position:])
        return planning

    @cached_property
    def _layers(self) -> tuple[Layers, ...]:
        return layers_of(self.prepared.each, self.placement, self._elision)

    def _started(self, shapes: Shapes, values: Mapping[int, int], *, only_shapes: bool = False) -> Planning:
        inputs = zip(self.prepared.graph.inputs, shapes, strict=True)
        live = {value.id: shape for value, shape in inputs if shape is not None}
        return self._planning(live, values, only_shapes=only_shapes)

    def _planning(
        self, shapes: Mapping[int, Shape], values: Mapping[int, int], *, only_shapes: bool = False
    ) -> Planning:
        known = {**self._folded, **shapes}
        return Planning(
            self.prepared,
            self.target,
            self.placement,
            self._elision,
            known,
            values,
            only_shapes=only_shapes,
        )

    def _check_claims(self, computed: Mapping[int, Shape]) -> None:
        """Raise if a tensor's maximum exceeds the device although no shape rule computes so large a shape."""
        for call in self.prepared.each:
            for tensor in call.outputs:
                if not isinstance(tensor, Tensor):
                    continue
                bytes_max = numel(tensor.shape_max) * self.target.storage(tensor.dtype).itemsize
                shape = computed.get(tensor.id, tensor.shape_max)
                if bytes_max > self.target.binding_bytes_max and numel(shape) < numel(tensor.shape_max):
                    where = f"{self.prepared.graph.name}, {call.node}"
                    raise GraphError(f"{where} computes {list(shape)} at most")

    def _port(self, value: Tensor | SymInt) -> Port:
        if isinstance(value, SymInt):
            return SymbolPort(value.id)
        buffer = self.placement.buffers[value.id]
        return TensorPort(value.id, value.dtype, value.shape_max, self.target.storage(value.dtype), buffer)
