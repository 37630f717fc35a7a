"""What a method takes, gives and keeps, in ExecuTorch's terms: the metadata of `executorch.runtime`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pteron.errors import InputError
from pteron.format import EValue, MethodRecord, TensorRecord

# ExecuTorch reports element types by these numbers, and shows them by these names.
_SCALAR_TYPES = {
    "u8": (0, "Byte"), "i8": (1, "Char"), "i16": (2, "Short"), "i32": (3, "Int"), "i64": (4, "Long"),
    "f16": (5, "Half"), "f32": (6, "Float"), "f64": (7, "Double"), "bool": (11, "Bool"),
    "bf16": (15, "BFloat16"),
}  # fmt: skip


class NoTensorError(InputError, IndexError):
    """A method has no tensor there."""


class TensorInfo:
    """A tensor's type and maximum size."""

    def __init__(self, record: TensorRecord) -> None:
        self._record = record

    def __repr__(self) -> str:
        _, kind = _SCALAR_TYPES[str(self._record.dtype)]
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={kind}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )

    def sizes(self) -> tuple[int, ...]:
        return self._record.sizes

    def dtype(self) -> int:
        return _SCALAR_TYPES[str(self._record.dtype)][0]

    def is_memory_planned(self) -> bool:
        """Whether the exporter gave it a place in memory. Pteron plans its own, whatever the file says."""
        return self._record.place is not None

    def nbytes(self) -> int:
        return prod(self._record.sizes) * self._record.dtype.itemsize


class MethodMeta:
    """What a method takes and gives, and its attributes: buffers and weights that the file has names for."""

    def __init__(self, record: MethodRecord) -> None:
        self._record = record
        self._inputs = [record.values[id] for id in record.inputs]
        self._outputs = [record.values[id] for id in record.outputs]
        self._attributes = [
            value for value in record.values if isinstance(value, TensorRecord) and value.name is not None
        ]

    def __repr__(self) -> str:
        sides = (
            f"num_{side}s={len(values)}, {side}_tensor_meta={list(map(_shown, values))}"
            for side, values in (("input", self._inputs), ("output", self._outputs))
        )
        return f"MethodMeta(name='{self.name()}', {', '.join(sides)})"

    def name(self) -> str:
        return self._record.name

    def num_inputs(self) -> int:
        return len(self._inputs)

    def num_outputs(self) -> int:
        return len(self._outputs)

    def num_attributes(self) -> int:
        return len(self._attributes)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        return _info("input", self._inputs, index)

    def output_tensor_meta(self, index: int) -> TensorInfo:
        return _info("output", self._outputs, index)

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        return _info("attribute", self._attributes, index)


def _info(kind: str, values: Sequence[EValue], index: int) -> TensorInfo:
    value = values[index] if 0 <= index < len(values) else None
    if not isinstance(value, TensorRecord):
        raise NoTensorError(f"{kind} {index} of {len(values)} is not a tensor")
    return TensorInfo(value)


def _shown(value: EValue) -> str:
    return repr(TensorInfo(value)) if isinstance(value, TensorRecord) else "None"
