"""4-bit weights from full-precision ones, by scales that stay."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _packed_shape(latent: Operand, *_: object) -> Shape:
    require(latent.rank == 2, "weights must have two dims", latent)
    return latent.shape[0], -(-latent.shape[1] // 2)


@op("et_vk.q4gsw_requant.default", "latent scales group_size:int -> out", shape=_packed_shape)
def q4gsw_requant(latent: Operand, scales: Operand, group_size: AnyInt, out: Operand) -> Iterator[Dispatch]:
    (rows, columns), group = latent.shape, int(group_size)
    require(group > 0, f"group_size {group} must be positive")
    fits = scales.rank == 2 and scales.shape[0] * group >= columns and scales.shape[1] >= rows
    require(fits, f"scales must be [k / {group}, n]", scales, latent)
    yield Dispatch(
        kernel("q4_requant"),
        latent=latent,
        scales=scales,
        out=out,
        rows=rows,
        columns=columns,
        group=group,
        scales_pitch=scales.shape[1],
        threads=out.numel,
    )
