"""Rotary embeddings: pairs of numbers rotated by an angle that grows with the position."""

from __future__ import annotations

import torch

from pteron.reference.table import reference

Pair = tuple[torch.Tensor, torch.Tensor]


def _rotate_neighbours(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """x[..., 2i] and x[..., 2i + 1] are a pair; the tables have one number for each."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), -1).flatten(-2)


@reference("et_vk.apply_rotary_emb.default")
def rope(xq: torch.Tensor, xk: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> Pair:
    """Queries and keys are [batch, steps, heads, width], the tables [steps, width / 2]."""
    cosines, sines = cosines[:, None], sines[:, None]
    return _rotate_neighbours(xq, cosines, sines), _rotate_neighbours(xk, cosines, sines)


@reference("et_vk.apply_rotary_emb_hf.default")
def rope_of_halves(
    xq: torch.Tensor, xk: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, start: int
) -> Pair:
    """x[i] and x[i + half] are a pair, of as many numbers as the tables are wide; the rest stays."""

    def rotate(x: torch.Tensor) -> torch.Tensor:
        width, rows = cosines.shape[1], slice(start, start + x.shape[1])
        rotated, rest = x[..., :width], x[..., width:]
        lower, upper = rotated.chunk(2, -1) if width else (rotated, rotated)
        crossed = torch.cat((-upper, lower), -1) if width else rotated
        return torch.cat((rotated * cosines[rows, None] + crossed * sines[rows, None], rest), -1)

    return rotate(xq), rotate(xk)


@reference("et_vk.apply_rotary_emb_interleaved.default")
def rope_by_pairs(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The table has cosine and sine in turn."""
    return _rotate_neighbours(x, table[..., 0::2], table[..., 1::2])
