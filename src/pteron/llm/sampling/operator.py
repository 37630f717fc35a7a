"""Choosing the next token on the GPU: not an exported operator, but one the language-model loop uses.

Where a mask, biases or counts change logits, a first kernel writes them anew (row.py). A look at the logits
finds the greatest of each block of them, which is all that greedy drawing needs.
Top-k and top-p are each a search for the last logit that is kept, in the order of all numbers of 32 bits,
eight bits at a time. Then every token left adds noise to its logit, and the one with the greatest sum is
drawn. Equal logits are kept or left out together, and the greatest are always kept. A token whose logit is
NaN or -inf is not drawn while another is a number; where one is NaN, so is the log-probability.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from pteron.dtypes import Storage
from pteron.graph import Shape
from pteron.llm.sampling.form import Form
from pteron.llm.sampling.row import LANES, LogitsRow, kernel
from pteron.llm.sampling.settings import TOPS_MAX
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, op, require
from pteron.ops.row_layout import shared_rows
from pteron.plan.advance import GROWTHS

SAMPLE, SAMPLE_PEAKS = "pteron.sample", "pteron.sample_peaks"
LANES_MERGING = 64  # blocks are few
BINS = 256  # of one step of a search
SHIFTS = (24, 16, 8, 0)  # bits below those that a step finds
RING = 16  # draws that are remembered with their log-probabilities


def pairs_of(form: Form) -> int:
    """How many pairs of words lie in `drawn`: a draw each, and behind them all the likeliest of each."""
    return RING * (1 + TOPS_MAX) if form.lists else RING


def _shapes(logits: Operand, *rest: object) -> tuple[Shape, Shape]:
    require(logits.rank >= 1 and logits.numel > 0, "logits must be [..., vocabulary]", logits)
    form = next(value for value in rest if isinstance(value, str))
    return (1, 1), (pairs_of(Form.read(form)), 2)


@op(
    SAMPLE,
    "logits seen! bias! mask! steps! form:str seed:int temperature:int top_k:int top_p:int log_min_p:int "
    "penalty:int presence:int frequency:int tops:int growths! words! -> token drawn",
    shape=_shapes,  # what is changed by others alone is a state too, so that other memory can stand for it
)
def sample(
    logits: Operand,
    seen: Operand,
    bias: Operand,
    mask: Operand,
    steps: Operand,
    form: str,
    seed: AnyInt,
    temperature: AnyInt,
    top_k: AnyInt,
    top_p: AnyInt,
    log_min_p: AnyInt,
    penalty: AnyInt,
    presence: AnyInt,
    frequency: AnyInt,
    tops: AnyInt,
    growths: Operand,
    words: Operand,
    token: Operand,
    drawn: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """A token, by the parts that `form` names. Numbers with a fraction are the bits of an f32."""
    parts = Form.read(form)
    row = LogitsRow.of(logits, target, seen=seen if parts.penalises else None, penalty=penalty)
    if parts.changes:
        row, change = row.changed(parts, seen, bias, mask, presence, frequency)
        yield change
    picks = Scratch(4 * row.block_count, Storage.U32)
    if parts.draws:
        yield scan(row)
        limit = yield from filtered(row, parts, temperature, top_k, top_p)
        yield pick(row, temperature, log_min_p, seed, steps, limit, picks)
    else:
        yield scan_and_pick(row, picks)
    if parts.lists:
        yield from listed(row, tops, steps, drawn)
    forgets = {} if parts.remembers else {"remember": ";"}
    yield Dispatch(
        kernel("sample_merge", **row.lanes(LANES_MERGING), RING=RING, GROWTHS=GROWTHS, **forgets),
        blocks=row.blocks,
        picks=picks,
        seen=None if forgets else seen,
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


def scan(row: LogitsRow) -> Dispatch:
    """Look at all logits, and pick none."""
    return row.look("sample_scan", declares={"greatest": "row_max(score, local)"})


def scan_and_pick(row: LogitsRow, picks: Scratch) -> Dispatch:
    """Look at all logits, and pick the greatest of each block."""
    return row.look("sample_scan", picks=picks)


def filtered(
    row: LogitsRow, form: Form, temperature: AnyInt, top_k: AnyInt, top_p: AnyInt
) -> Generator[Dispatch, None, Scratch | None]:
    """Find the last place that top-k leaves, then the last of these that top-p leaves; None: all are left."""
    limit: Scratch | None = None
    for is_wanted, counts in ((form.narrows, True), (form.shares, False)):
        if is_wanted:
            search = Scratch(2 * row.count, Storage.U32)
            k, p = (top_k, 0) if counts else (0, top_p)
            yield from searched(row, temperature, k, p, limit, search, counts=counts)
            limit = search
    return limit


def searched(
    row: LogitsRow,
    temperature: AnyInt,
    top_k: AnyInt,
    top_p: AnyInt,
    limit: Scratch | None,
    search: Operand | Scratch,
    *,
    counts: bool,
) -> Iterator[Dispatch]:
    """Write to `search` the last place whose tokens are among the `top_k`, where it counts, or else in the
    share `top_p`."""
    slots, settings = row.binds("sample_narrow")
    before = limit if row.texts else None  # one text is left alone by no search that it has
    narrow = row.declares("sample_narrow", counts)
    if before is None:
        narrow["limit_before"] = "0xffffffffu"
    tallies = Scratch(BINS * row.block_count * row.count)
    for shift in SHIFTS:
        yield row.look(
            "sample_tally",
            limit,
            declares={"COUNTS": counts, **row.declares("sample_tally", counts)},
            search=search,
            tallies=tallies,
            block_count=row.block_count,
            shift=shift,
            temperature=temperature,
        )
        yield Dispatch(
            kernel("sample_narrow", **narrow),
            tallies=tallies,
            search=search,
            limit=before,
            block_count=row.block_count,
            shift=shift,
            top_k=top_k,
            top_p=top_p,
            base=row.base,
            vocabulary=row.vocabulary,
            groups=(1, row.count, 1),
            slots=slots,
            settings=settings,
        )


def pick(
    row: LogitsRow,
    temperature: AnyInt,
    log_min_p: AnyInt,
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
        temperature=temperature,
        log_min_p=log_min_p,
    )


def listed(row: LogitsRow, tops: AnyInt, steps: Operand, drawn: Operand) -> Iterator[Dispatch]:
    """Write to `drawn` the likeliest tokens of a step that is not counted yet."""
    lists = Scratch(2 * TOPS_MAX * row.block_count * row.count, Storage.U32)
    yield Dispatch(
        kernel("sample_list", **row.lanes(LANES), LISTED=TOPS_MAX, **row.declares("sample_list")),
        logits=row.logits,
        listed=lists,
        vocabulary=row.vocabulary,
        base=row.base,
        block=row.block,
        count=tops,
        groups=(row.block_count, row.count, 1),
    )
    slots, settings = row.binds("sample_tell")
    told = {"LISTED": TOPS_MAX, "RING": RING, **row.declares("sample_tell")}
    yield Dispatch(
        kernel("sample_tell", **row.lanes(LANES_MERGING), **told),
        blocks=row.blocks,
        listed=lists,
        steps=steps,
        drawn=drawn,
        block_count=row.block_count,
        count=tops,
        base=row.base,
        vocabulary=row.vocabulary,
        groups=(1, row.count, 1),
        slots=slots,
        settings=settings,
    )
