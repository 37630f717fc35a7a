"""Tensors of a program that its weight files hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from pteron.errors import GraphError
from pteron.format import EValue, MethodRecord, ProgramFile, TensorRecord


def with_external_data(
    file: ProgramFile, record: MethodRecord, weights: Mapping[str, memoryview]
) -> MethodRecord:
    """The method with the tensors that it keeps in weight files found there."""

    def found(value: EValue) -> EValue:
        if not isinstance(value, TensorRecord) or not value.is_external:
            return value
        assert value.name is not None  # the reader requires it
        where = f"{file.name}, method {record.name}: tensor {value.name!r}"
        data, needed = weights.get(value.name), prod(value.sizes) * value.dtype.itemsize
        if data is None:
            raise GraphError(f"{where} is not in the weight files given (load(..., data=[...]))")
        if len(data) != needed:
            raise GraphError(f"{where} needs {needed} bytes, its weight file has {len(data)}")
        return replace(value, data=data)

    return replace(record, values=tuple(map(found, record.values)))
