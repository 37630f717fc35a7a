"""Operators that draw the next token on the GPU: from the logits of one sequence, or for every row of a
batch.

1. If a mask, biases or penalties apply, `sample_change` writes the changed logits.
2. `sample_scan` finds the maximum of each block of logits; a greedy draw needs no more.
3. Top-k and top-p each search for the smallest logit that they keep: a radix search over the 32-bit patterns,
   eight bits per step (`sample_tally`, `sample_narrow`).
4. `sample_pick` adds Gumbel noise to each remaining logit and takes the best token of each block.
5. `sample_merge` takes the best of all blocks.

Equal logits are kept or dropped together, and the maximum is always kept. A token whose logit is NaN or -inf
is drawn only if no logit is a number. If a logit is NaN, the log-probability is NaN.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from pteron.dtypes import Storage
from pteron.llm.sampling.form import RING, Form
from pteron.llm.sampling.logits_rows import (
    BLOCK,
    LANES,
    NO_NUMBERS,
    SETTINGS_WORDS,
    Batch,
    LogitsRows,
    Numbers,
    kernel,
)
from pteron.llm.sampling_options import OPTIONS, TOPS_MAX
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, Target, op, require
from pteron.plan.advance import GROWTHS

SAMPLE, SAMPLE_ROWS = "pteron.sample", "pteron.sample_rows"
LANES_MERGING = 64  # blocks are few
BINS = 256  # per step of a search
SHIFTS = (24, 16, 8, 0)  # position of the eight bits that a step finds


def mask_words(vocabulary: int) -> int:
    """How many words hold a bit for each token."""
    return -(-vocabulary // 32)


def _form_in(arguments: tuple[object, ...]) -> Form:
    return Form.parse(next(value for value in arguments if isinstance(value, str)))


def _shapes(logits: Operand, *rest: object) -> tuple[LiveShape, LiveShape]:
    require(logits.rank >= 1 and logits.numel > 0, "logits must be [..., vocabulary]", logits)
    return (1, 1), (_form_in(rest).pairs, 2)


@op(
    SAMPLE,
    f"logits seen! bias! mask! steps! form:str {':int '.join(OPTIONS)}:int growths! words! -> token drawn",
    shape=_shapes,  # operands that are only read are states too, so that other memory can replace them
)
def sample(
    logits: Operand,
    seen: Operand,
    bias: Operand,
    mask: Operand,
    steps: Operand,
    form: str,
    *rest: Any,  # the numbers, then the other operands
    target: Target,
) -> Iterator[Dispatch]:
    """A token of one sequence, by the logits processors and filters that `form` names."""
    flags, numbers = Form.parse(form), dict(zip(OPTIONS, rest[:-4], strict=True))
    growths, words, token, drawn = rest[-4:]
    penalised = seen if flags.has_repetition_penalty else None
    rows = LogitsRows.of(logits, target, seen=penalised, penalty=numbers["repetition_penalty"])
    if flags.changes_logits:
        rows, change = rows.apply_processors(flags, seen, bias, mask, mask_words(rows.vocabulary), numbers)
        yield change
    picks = Scratch(4 * rows.block_count, Storage.U32)
    if flags.is_random:
        yield scan(rows)
        limit = yield from filter_tokens(rows, flags, numbers)
        yield pick(rows, numbers, steps, limit, picks)
    else:
        yield scan_and_pick(rows, picks)
    if flags.has_top_logprobs:
        yield from list_top_tokens(rows, numbers["top_logprobs"], steps, drawn)
    yield _merge(rows, flags, picks, seen, steps, token, drawn, growths, words)


def _batch_shape(logits: Operand, slots: Operand, settings: Operand, *rest: object) -> LiveShape:
    fits = logits.rank == 2 and slots.shape == logits.shape[:1] and logits.shape[1] > 0
    require(fits, "logits must be [rows, vocabulary], with a slot for each row", logits, slots)
    require(
        settings.shape[1:] == (SETTINGS_WORDS,), f"a slot has {SETTINGS_WORDS} words of settings", settings
    )
    return (settings.shape[0], _form_in(rest).pairs, 2)


@op(
    SAMPLE_ROWS,
    "logits slots settings! seen! bias! mask! tokens! positions! form:str -> drawn",
    shape=_batch_shape,
)
def sample_rows(
    logits: Operand,
    slots: Operand,
    settings: Operand,
    seen: Operand,
    bias: Operand,
    mask: Operand,
    tokens: Operand,
    positions: Operand,
    form: str,
    drawn: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """A token for each sequence of a batch: row y of the logits belongs to slot slots[y]. Sequences with
    different settings share a launch: `form` is the union of their forms, and kernels skip rows that do not
    need a filter."""
    flags = Form.parse(form)
    if not slots.numel:
        return
    rows = LogitsRows.of(logits, target, batch=Batch(slots, settings))
    if flags.has_repetition_penalty or flags.changes_logits:
        rows, change = rows.apply_processors(flags, seen, bias, mask, mask_words(rows.vocabulary), NO_NUMBERS)
        yield change
    picks = Scratch(4 * rows.block_count * rows.count, Storage.U32)
    yield scan_and_pick(rows, picks)
    if flags.is_random:
        limit = yield from filter_tokens(rows, flags, NO_NUMBERS)
        yield pick(rows, NO_NUMBERS, positions, limit, picks)
    if flags.has_top_logprobs:
        yield from list_top_tokens(rows, TOPS_MAX, positions, drawn)
    yield _merge(rows, flags, picks, seen, positions, tokens, drawn)


def _merge(
    rows: LogitsRows,
    form: Form,
    picks: Scratch,
    seen: Operand,
    steps: Operand,
    token: Operand,
    drawn: Operand,
    growths: Operand | None = None,
    words: Operand | None = None,
) -> Dispatch:
    """Draw the best pick of all blocks of each row."""
    return rows.dispatch_rows(
        "sample_merge",
        **rows.lanes(LANES_MERGING),
        RING=RING,
        RINGED=form.pairs,
        GROWTHS=GROWTHS,
        vocabulary=rows.vocabulary,
        blocks=rows.blocks,
        picks=picks,
        seen=seen if form.counts_tokens else None,
        steps=steps,
        token=token,
        drawn=drawn,
        growths=growths,
        words=words,
    )


def scan(rows: LogitsRows) -> Dispatch:
    """Scan all logits, without a pick."""
    return rows.dispatch_blocks("sample_scan")


def scan_and_pick(rows: LogitsRows, picks: Scratch) -> Dispatch:
    """Scan all logits, and pick the greatest of each block."""
    return rows.dispatch_blocks("sample_scan", picks=picks)


def filter_tokens(
    rows: LogitsRows, form: Form, numbers: Numbers
) -> Generator[Dispatch, None, Scratch | None]:
    """Find the last place that top-k keeps, then the last of these that top-p keeps; None: all are kept."""
    limit: Scratch | None = None
    for is_wanted, is_top_k in ((form.has_top_k, True), (form.has_top_p, False)):
        if is_wanted:
            search = Scratch(2 * rows.count, Storage.U32)
            yield from search_limit(rows, numbers, limit, search, is_top_k=is_top_k)
            limit = search
    return limit


def search_limit(
    rows: LogitsRows, numbers: Numbers, limit: Scratch | None, search: Operand | Scratch, *, is_top_k: bool
) -> Iterator[Dispatch]:
    """Write to `search` the last place that top-k keeps, or that top-p keeps."""
    tallies = Scratch(BINS * rows.block_count * rows.count)
    for shift in SHIFTS:
        yield rows.dispatch_blocks(
            "sample_tally",
            limit,
            COUNTS=is_top_k,
            search=search,
            tallies=tallies,
            block_count=rows.block_count,
            shift=shift,
            temperature=numbers["temperature"],
        )
        yield rows.dispatch_rows(
            "sample_narrow",
            COUNTS=is_top_k,
            tallies=tallies,
            search=search,
            limit=limit if rows.batch else None,  # a single row skips no search
            shift=shift,
            top_k=numbers["top_k"] if is_top_k else 0,
            top_p=0 if is_top_k else numbers["top_p"],
        )


def pick(
    rows: LogitsRows, numbers: Numbers, steps: Operand, limit: Scratch | None, picks: Operand | Scratch
) -> Dispatch:
    """Write to `picks` the best score of every block, and its token."""
    return rows.dispatch_blocks(
        "sample_pick",
        limit,
        picks=picks,
        block_count=rows.block_count,
        seed=numbers["seed"],
        steps=steps,
        temperature=numbers["temperature"],
        log_min_p=numbers["min_p"],
    )


def list_top_tokens(rows: LogitsRows, tops: AnyInt, steps: Operand, drawn: Operand) -> Iterator[Dispatch]:
    """Write to `drawn` the likeliest tokens of a step that is not counted yet."""
    lists = Scratch(2 * TOPS_MAX * rows.block_count * rows.count, Storage.U32)
    yield Dispatch(
        kernel("sample_list"),
        **rows.lanes(LANES),
        **rows.place("sample_list"),
        LISTED=TOPS_MAX,
        logits=rows.logits,
        listed=lists,
        vocabulary=rows.vocabulary,
        base=rows.base,
        block=BLOCK,
        count=tops,
        groups=(rows.block_count, rows.count, 1),
    )
    yield rows.dispatch_rows(
        "sample_list_merge",
        **rows.lanes(LANES_MERGING),
        LISTED=TOPS_MAX,
        RING=RING,
        blocks=rows.blocks,
        listed=lists,
        steps=steps,
        drawn=drawn,
        count=tops,
    )
