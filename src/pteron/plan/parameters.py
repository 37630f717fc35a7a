"""A dispatch's parameters -> the bytes of its kernel's Params, and the live integers among them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from pteron.ops import Dispatch, RequirementError
from pteron.ops.dispatch import Parameter
from pteron.ops.live import LiveInt
from pteron.ops.terms import Affine
from pteron.plan.plan import ParameterBlock
from pteron.wgsl import Field, Module

_CODES = {"u32": "<I", "i32": "<i"}
_I32_MAX = (1 << 31) - 1
_F32_MAX = 3.4028234663852886e38


def block_of(dispatch: Dispatch, module: Module) -> ParameterBlock:
    """The block that a dispatch gives; it names every member of Params, and nothing else."""
    names = {field.name for field in module.fields}
    if names != dispatch.parameters.keys():
        raise ValueError(
            f"kernel {dispatch.kernel} has the parameters {sorted(names)}, "
            f"the dispatch gives {sorted(dispatch.parameters)}"
        )
    data = bytearray(module.params_size)
    live: list[tuple[int, Affine]] = []
    for field_ in module.fields:
        _pack(field_, dispatch.parameters[field_.name], data, live)
    return ParameterBlock(bytes(data), tuple(live))


def _pack(field_: Field, value: Parameter, data: bytearray, live: list[tuple[int, Affine]]) -> None:
    scalars = list(value) if isinstance(value, Sequence) else [value]
    if len(scalars) > field_.count:
        raise RequirementError(f"{field_.name} takes at most {field_.count} values, got {len(scalars)}")
    for position, scalar in enumerate(scalars):
        offset = field_.offset + 4 * position
        if field_.scalar == "f32":
            struct.pack_into("<f", data, offset, _saturated(float(scalar)))
        elif isinstance(scalar, LiveInt):
            if scalar < (0 if field_.scalar == "u32" else -_I32_MAX - 1) or scalar > _I32_MAX:
                raise RequirementError(f"{field_.name} = {scalar} does not fit {field_.scalar}")
            live.append((offset, scalar.expression))
        else:
            try:
                struct.pack_into(_CODES[field_.scalar], data, offset, int(scalar))
            except struct.error:
                raise RequirementError(f"{field_.name} = {scalar} does not fit {field_.scalar}") from None


def _saturated(number: float) -> float:
    """Within f32: exporters write the largest f64 where they mean no limit."""
    return number if math.isinf(number) or math.isnan(number) else min(max(number, -_F32_MAX), _F32_MAX)
