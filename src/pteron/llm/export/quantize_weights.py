"""A float matrix -> 4-bit integers from -8 to 7, with a scale for each group of columns in a row.

`quantize_nearest` searches the scales with the least squared error. `quantize_gptq` also compensates the
error of each column in the columns after it; for that it needs statistics of the matrix's inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # torch.Tensor, which is untyped here
LOWEST, HIGHEST = -8, 7
# Candidates for a group's scale, as multiples of (largest weight / -8); above 1 the largest weight is
# clipped. The first two are the plain choice, with either sign.
REACHES = (7.5 / 8, -7.5 / 8, 1.0, 1.07, 1.14, 1.22, 1.3)
DAMPING = 0.01  # of the mean second moment, added to the diagonal: some inputs may be zero in all texts


@dataclass
class QuantizedMatrix:
    values: Tensor  # int8 [rows, columns]
    scales: Tensor  # float32 [rows, groups]

    def weight(self) -> Tensor:
        """The dequantised matrix."""
        group = self.values.shape[1] // self.scales.shape[1]
        return self.values * self.scales.repeat_interleave(group, 1)

    def split(self, rows: list[int]) -> list[QuantizedMatrix]:
        parts = zip(self.values.split(rows), self.scales.split(rows), strict=True)
        return [QuantizedMatrix(*part) for part in parts]


def quantize_nearest(weight: Tensor, group: int) -> QuantizedMatrix:
    """Round each weight to the nearest integer at its group's scale."""
    import torch

    groups = weight.unflatten(1, (-1, group))
    scales = choose_scales(groups, torch.ones(group))
    return QuantizedMatrix(to_integers(groups, scales).flatten(1).to(torch.int8), scales.squeeze(-1))


def quantize_gptq(weight: Tensor, group: int, moments: Tensor) -> QuantizedMatrix:
    """`moments` is inputsᵀ · inputs, [columns, columns]."""
    import torch

    rows, columns = weight.shape
    factor = compensation_factor(moments)
    pivots = factor.diagonal()
    pending = weight.clone()
    values = torch.empty(rows, columns, dtype=torch.int8)
    scales = torch.empty(rows, columns // group)
    for start in range(0, columns, group):
        end = start + group
        scale = choose_scales(pending[:, start:end], pivots[start:end] ** -2)
        errors = torch.empty(rows, group)
        for column in range(start, end):
            rounded = to_integers(pending[:, column : column + 1], scale)
            values[:, column] = rounded[:, 0].to(torch.int8)
            error = (pending[:, column : column + 1] - rounded * scale) / pivots[column]
            pending[:, column + 1 : end] -= error * factor[column, column + 1 : end]
            errors[:, column - start] = error[:, 0]
        pending[:, end:] -= errors @ factor[start:end, end:]
        scales[:, start // group] = scale[:, 0]
    return QuantizedMatrix(values, scales)


def compensation_factor(moments: Tensor) -> Tensor:
    """The upper Cholesky factor of the moments' inverse.

    The error of column j, divided by the diagonal element j, times row j is what to subtract from the columns
    after it; the square of the quotient is the remaining loss.
    """
    import torch

    damped = moments.double()
    diagonal = damped.diagonal()
    diagonal += DAMPING * diagonal.mean() + 1e-12  # positive also if all inputs are zero
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True).float()


def choose_scales(groups: Tensor, importance: Tensor) -> Tensor:
    """The scales [..., 1] of groups [..., group]; `importance` weights the squared error of each column.

    For each candidate the integers are computed, then the best scale for these integers. Scales may be
    negative, because -8 has no positive counterpart.
    """
    import torch

    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    largest = torch.where(largest == 0, 1.0, largest)
    chosen, least = torch.ones_like(largest), torch.full_like(largest, torch.inf)
    for reach in REACHES:
        values = to_integers(groups, largest / (LOWEST * reach))
        weighted = values * importance
        squares = (weighted * values).sum(-1, keepdim=True)
        scale = (weighted * groups).sum(-1, keepdim=True) / squares
        error = (values * scale - groups).square_().mul_(importance).sum(-1, keepdim=True)
        is_better = error < least
        chosen, least = torch.where(is_better, scale, chosen), torch.where(is_better, error, least)
    return chosen


def to_integers(values: Tensor, scale: Tensor) -> Tensor:
    """Integers, stored as floats."""
    return (values / scale).round_().clamp_(LOWEST, HIGHEST)
