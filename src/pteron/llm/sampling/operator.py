"""Choosing the next token on the GPU: not an exported operator, but one the language-model loop uses.

A first look at the logits finds the greatest of each block of them, which is all that greedy drawing needs.
Top-k and top-p are each a search for the last logit that is kept, in the order of all numbers of 32 bits,
eight bits at a time. Then every token left adds noise to its logit, and the one with the greatest sum is
drawn. Equal logits are kept or left out together, and the greatest are always kept. A token whose logit is
NaN or -inf is not drawn while another is a number; where one is NaN, so is the log-probability.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pteron.dtypes import Storage
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, op, require
from pteron.ops.dispatch import Bound
from pteron.ops.rows import shared_rows
from pteron.plan.advance import GROWTHS
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

SAMPLE, SAMPLE_PEAKS = "pteron.sample", "pteron.sample_peaks"
LANES, LANES_OF_A_CPU = 256, 32  # where barriers are costly, fewer meet at one
LANES_MERGING = 64  # blocks are few
BLOCK = 2048  # tokens per workgroup
BINS = 256  # of one step of a search
SHIFTS = (24, 16, 8, 0)  # bits below those that a step finds
RING = 16  # draws that are remembered with their log-probabilities
REACH = 50.0  # as in lib/sample.wgsl
DIVISORS = (2.0**-100, 2.0**100)  # temperatures and penalties: draws no longer change beyond these


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The last row of logits, with the penalty for what was seen: what the sampler's kernels look at."""

    logits: Operand
    seen: Operand | None  # None: nothing is penalised
    penalty: float
    blocks: Scratch
    target: Target

    @classmethod
    def of(cls, logits: Operand, seen: Operand, penalty: float, target: Target) -> Row:
        blocks = Scratch(4 * -(-logits.shape[-1] // BLOCK))
        return cls(logits, seen if penalty != 1.0 else None, penalty, blocks, target)

    def lanes(self, most: int) -> dict[str, Any]:
        """Declarations of a kernel whose workgroups have so many lanes, fewer on a CPU."""
        layout = shared_rows(self.target, min(most, LANES_OF_A_CPU) if self.target.is_cpu else most, 1)
        return {**layout, "use_best": "best_subgroup"} if "use_rows" in layout else layout

    @property
    def vocabulary(self) -> int:
        return self.logits.shape[-1]

    @property
    def base(self) -> int:
        return self.logits.numel - self.vocabulary

    @property
    def block_count(self) -> int:
        return -(-self.vocabulary // BLOCK)

    def look(
        self,
        name: str,
        limit: Operand | Scratch | None = None,
        *,
        declares: Mapping[str, object] = MappingProxyType({}),
        **arguments: Bound | AnyInt | float,
    ) -> Dispatch:
        """A kernel over all blocks that sees logits up to the place in `limit`, where there is one."""
        constants = dict(declares)
        if self.seen is None:
            constants["was_seen"] = "false"
            if name == "sample_scan":
                constants |= {"greatest_logit": "most_penalised", "logit_of": "bitcast<f32>(best.x)"}
        if limit is None and name != "sample_scan":
            constants["last_place"] = "0xffffffffu"
        return Dispatch(
            kernel(name, **self.lanes(LANES), **constants),
            logits=self.logits,
            seen=self.seen,
            blocks=self.blocks,
            limit=limit,
            vocabulary=self.vocabulary,
            base=self.base,
            block=BLOCK,
            penalty=_within_f32(self.penalty),
            groups=(self.block_count, 1, 1),
            **arguments,  # type: ignore[arg-type]  # operands and parameters, by the kernel's own names
        )


def _shapes(logits: Operand, *_: object) -> tuple[Shape, Shape]:
    require(logits.rank >= 1 and logits.numel > 0, "logits must be [..., vocabulary]", logits)
    return (1, 1), (RING, 2)


@op(
    SAMPLE,
    "logits seen! steps! temperature:float top_k:int top_p:float min_p:float penalty:float seed:int "
    "growths! words! -> token drawn",  # both states, so that other memory can stand in their place
    shape=_shapes,
)
def sample(
    logits: Operand,
    seen: Operand,
    steps: Operand,
    temperature: float,
    top_k: AnyInt,
    top_p: float,
    min_p: float,
    penalty: float,
    seed: AnyInt,
    growths: Operand,
    words: Operand,
    token: Operand,
    drawn: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    row = Row.of(logits, seen, penalty, target)
    picks = Scratch(4 * row.block_count, Storage.U32)
    if temperature <= 0:
        yield row.look("sample_scan", picks=picks)
    else:
        yield scan(row)
        limit = yield from filtered(row, temperature, int(top_k), top_p)
        yield pick(row, temperature, min_p, seed, steps, limit, picks)
    remembers = {} if row.seen else {"remember": ";"}
    yield Dispatch(
        kernel("sample_merge", **row.lanes(LANES_MERGING), RING=RING, GROWTHS=GROWTHS, **remembers),
        blocks=row.blocks,
        picks=picks,
        seen=row.seen,
        steps=steps,
        token=token,
        drawn=drawn,
        growths=growths,
        words=words,
        block_count=row.block_count,
        groups=(1, 1, 1),
    )


@op(
    SAMPLE_PEAKS,
    "peaks steps! growths! words! -> token drawn",
    shape=lambda peaks, *_: ((1, 1), (RING, 2)),
)
def sample_peaks(
    peaks: Operand,
    steps: Operand,
    growths: Operand,
    words: Operand,
    token: Operand,
    drawn: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """The likeliest token, from the greatest logit of every block: (its bits, its token, its bits again, the
    bits of the sum of exp(logit - greatest)), as the kernel that made the logits leaves them."""
    layout = shared_rows(target, LANES, 1)
    library = {"use_best": "best_subgroup"} if "use_rows" in layout else {}
    looked_at = "vec2(bitcast<f32>(picks[block].z), bitcast<f32>(picks[block].w))"
    declarations = {"RING": RING, "GROWTHS": GROWTHS, "remember": ";", "looked_at": looked_at}
    yield Dispatch(
        kernel("sample_merge", **layout, **library, **declarations),
        blocks=None,
        picks=peaks,
        seen=None,
        steps=steps,
        token=token,
        drawn=drawn,
        growths=growths,
        words=words,
        block_count=peaks.shape[0],
        groups=(1, 1, 1),
    )


def scan(row: Row) -> Dispatch:
    """Look at all logits, and pick none."""
    return row.look("sample_scan", declares={"greatest": "row_max(score, local)"})


def filtered(
    row: Row, temperature: float, top_k: int, top_p: float
) -> Generator[Dispatch, None, Scratch | None]:
    """Find the last place that top-k leaves, then the last of these that top-p leaves; None: all are left."""
    limit: Scratch | None = None
    for k, p in ((top_k, 1.0), (0, top_p)):
        if 0 < k < row.vocabulary or p < 1.0:
            search = Scratch(2, Storage.U32)
            yield from searched(row, temperature, k, p, limit, search)
            limit = search
    return limit


def searched(
    row: Row, temperature: float, top_k: int, top_p: float, limit: Scratch | None, search: Operand | Scratch
) -> Iterator[Dispatch]:
    """Write to `search` the last place whose tokens are among the `top_k`, or 0: in the share `top_p`."""
    tallies = Scratch(BINS * row.block_count)
    for shift in SHIFTS:
        yield row.look(
            "sample_tally",
            limit,
            declares={"COUNTS": top_k > 0},
            search=search,
            tallies=tallies,
            block_count=row.block_count,
            shift=shift,
            temperature=_within_f32(temperature),
        )
        yield Dispatch(
            kernel("sample_narrow"),
            tallies=tallies,
            search=search,
            block_count=row.block_count,
            shift=shift,
            top_k=top_k,
            top_p=top_p,
            groups=(1, 1, 1),
        )


def pick(
    row: Row,
    temperature: float,
    min_p: float,
    seed: AnyInt,
    steps: Operand,
    limit: Scratch | None,
    picks: Operand | Scratch,
) -> Dispatch:
    """Write to `picks` the best score of every block, and its token."""
    return row.look(
        "sample_pick",
        limit,
        picks=picks,
        block_count=row.block_count,
        seed=seed,
        steps=steps,
        temperature=_within_f32(temperature),
        log_min_p=max(math.log(min_p), -REACH) if min_p > 0 else -REACH,
    )


def _within_f32(divisor: float) -> float:
    least, most = DIVISORS
    return min(max(divisor, least), most)
