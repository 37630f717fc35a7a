"""Small PyTorch modules to compile, and how their outputs are compared."""

# mypy: disable-error-code="misc, attr-defined"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import torch
from torch import Tensor, nn


def same(found: object, expected: object, **tolerance: float) -> None:
    torch.testing.assert_close(found, expected, **tolerance or {"rtol": 1e-4, "atol": 1e-5})


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).view(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Counting(nn.Module):
    """A cache that is written row by row, a running mean that host operators read, a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.full((4, 3), 0.5))
        self.register_buffer("mean", torch.ones(3), persistent=False)
        self.register_buffer("count", torch.tensor([0]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.rows.index_copy_(0, self.count, x)
        self.count.add_(1)
        self.mean.mul_(0.5).add_(x[0])
        x.add_(1)
        return self.rows, self.mean.erf() + x, self.count + 0


class Training(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(x))
