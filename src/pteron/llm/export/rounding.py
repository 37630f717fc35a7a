"""A matrix of floats -> integers of 4 bits, from -8 to 7, and a scale for each group of columns in a row.

`to_nearest` looks for the scales that leave the least squared error. `with_feedback` also makes good what
rounding a column did to the matrix's results, in the columns that are still to come; it has to know what
enters the matrix. (The method is known as GPTQ.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # torch.Tensor, which is untyped here
LOWEST, HIGHEST = -8, 7
# Where the largest weight of a group is tried, as multiples of -8; beyond 1 it is cut off. The first two are
# what its extremes alone suggest, with either sign.
REACHES = (7.5 / 8, -7.5 / 8, 1.0, 1.07, 1.14, 1.22, 1.3)
DAMPING = 0.01  # of the mean second moment, added to each: what never entered may enter some day


@dataclass
class Rounded:
    values: Tensor  # int8 [rows, columns]
    scales: Tensor  # float32 [rows, groups]

    def weight(self) -> Tensor:
        """The matrix that these stand for."""
        group = self.values.shape[1] // self.scales.shape[1]
        return self.values * self.scales.repeat_interleave(group, 1)

    def split(self, rows: list[int]) -> list[Rounded]:
        """Matrices of so many rows each."""
        return [
            Rounded(*parts) for parts in zip(self.values.split(rows), self.scales.split(rows), strict=True)
        ]


def to_nearest(weight: Tensor, group: int) -> Rounded:
    """Every weight becomes the integer that is nearest to it at its group's scale."""
    import torch

    groups = weight.unflatten(1, (-1, group))
    scales = choose_scales(groups, torch.ones(group))
    return Rounded(to_integers(groups, scales).flatten(1).to(torch.int8), scales.squeeze(-1))


def with_feedback(weight: Tensor, group: int, moments: Tensor) -> Rounded:
    """`moments` are the sums of the products of every two inputs, [columns, columns]."""
    import torch

    rows, columns = weight.shape
    spread = spread_of(moments)
    pivots = spread.diagonal()
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
            pending[:, column + 1 : end] -= error * spread[column, column + 1 : end]
            errors[:, column - start] = error[:, 0]
        pending[:, end:] -= errors @ spread[start:end, end:]
        scales[:, start // group] = scale[:, 0]
    return Rounded(values, scales)


def spread_of(moments: Tensor) -> Tensor:
    """How a column's error is made good by later columns: row j for column j, an upper triangle.

    It is the Cholesky factor of the moments' inverse. An error in column j, divided by the diagonal, times
    the row is what to take from the columns after it; its square is what the results still lose.
    """
    import torch

    damped = moments.double()
    diagonal = damped.diagonal()
    diagonal += DAMPING * diagonal.mean() + 1e-12  # of a matrix that nothing ever entered as well
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True).float()


def choose_scales(groups: Tensor, importance: Tensor) -> Tensor:
    """The scales [..., 1] of groups [..., group], where an error counts by its column's importance.

    Each reach is tried, with the scale that is best for the integers that it leads to. As -8 has no positive
    counterpart, a scale may be negative.
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
    """As floats still."""
    return (values / scale).round_().clamp_(LOWEST, HIGHEST)
