"""A prepared graph for one kind of device: the buffers of its tensors, and a plan for any live shapes."""

from __future__ import annotations

from collections.abc import Mapping

from pteron.errors import GraphError, MisfitError
from pteron.graph import Shape, SymInt, Tensor
from pteron.graph.values import numel
from pteron.ops import Target
from pteron.passes import Prepared, place
from pteron.plan.copy_elision import CopyElision
from pteron.plan.executable import Executable, Port, Shapes, SymbolPort, TensorPort
from pteron.plan.plan import Plan
from pteron.plan.planner import Planning
from pteron.plan.verify import check_memory


class Compiled:
    """Makes plans of a graph. The executable keeps some of them."""

    def __init__(self, prepared: Prepared, target: Target) -> None:
        self.prepared = prepared
        self.target = target
        self.placement = place(prepared, target)
        self._elision = CopyElision(prepared, self.placement)
        check_memory(prepared.graph.name, prepared.calls, self.placement, target)
        self._folded: Mapping[int, Shape] = {}
        self._at_maximum: Mapping[int, Shape] | None = None  # shapes, once they are known
        once = self._planning({}, {})
        try:
            for call in prepared.once:
                once.add(call)
        except MisfitError as error:  # constants alone are at fault
            raise GraphError(str(error)) from None
        self._folded = once.plain_shapes  # the shapes of folded constants; the file may claim others
        self.executable = Executable(
            name=prepared.graph.name,
            target=target,
            inputs=tuple(map(self._port, prepared.graph.inputs)),
            outputs=tuple(map(self._port, prepared.graph.outputs)),
            sources=prepared.sources,
            slots=self.placement.slot_bytes,
            states=self.placement.states,
            once=once.finish(),
        )

    def plan(self, shapes: Shapes, values: Mapping[int, int]) -> Plan:
        """The plan for these input shapes and values of live integers. Dims among the values (`dim_id`) are
        live: the plan holds for other sizes of them, too."""
        return self.walk(shapes, values).finish()

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

        If live integers shape tensors, their values are unknown here, so a mismatch proves nothing.
        """
        values = {source.symbol: 0 for source in self.prepared.sources}
        try:
            walked = self.walk(self.shapes_max, values)
        except MisfitError as error:
            if error.is_certain:
                raise GraphError(str(error)) from None
            return None
        self._at_maximum = walked.plain_shapes
        self._check_claims(self._at_maximum)
        return walked.finish(), values

    def walk(self, shapes: Shapes, values: Mapping[int, int], *, only_shapes: bool = False) -> Planning:
        """The calls of a run, planned: with the shapes of all tensors and the dispatches of launches."""
        inputs = zip(self.prepared.graph.inputs, shapes, strict=True)
        live = {value.id: shape for value, shape in inputs if shape is not None}
        planning = self._planning(live, values, only_shapes=only_shapes)
        for call in self.prepared.each:
            planning.add(call)
        return planning

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
