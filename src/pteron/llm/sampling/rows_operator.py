"""Choosing the next tokens of several texts at once: row y of the logits is of the text in slot slots[y].

What a text is drawn by are numbers of its slot, so that texts of any settings share a launch: the operator's
form names what any of them needs, and kernels leave those alone that do without.
"""

from __future__ import annotations

from collections.abc import Iterator

from pteron.dtypes import Storage
from pteron.graph import Shape
from pteron.llm.sampling.form import Form
from pteron.llm.sampling.graphs import mask_words
from pteron.llm.sampling.operator import (
    LANES_MERGING,
    RING,
    filtered,
    listed,
    pairs_of,
    pick,
    scan_and_pick,
)
from pteron.llm.sampling.row import LogitsRow, kernel
from pteron.llm.sampling.settings import TOPS_MAX
from pteron.llm.sampling.texts import SETTINGS, Texts
from pteron.ops import Dispatch, Operand, Scratch, Target, op, require

SAMPLE_ROWS = "pteron.sample_rows"
_WORKGROUP = 64  # of rows_change.wgsl


def _shape(logits: Operand, slots: Operand, settings: Operand, *rest: object) -> Shape:
    fits = logits.rank == 2 and slots.shape == logits.shape[:1] and logits.shape[1] > 0
    require(fits, "logits are [rows, vocabulary], with a slot for each row", logits, slots)
    require(settings.shape[1:] == (SETTINGS,), f"a slot has {SETTINGS} words of settings", settings)
    form = next(value for value in rest if isinstance(value, str))
    return (settings.shape[0], pairs_of(Form.read(form)), 2)


@op(
    SAMPLE_ROWS,
    "logits slots settings! seen! bias! mask! tokens! positions! form:str -> drawn",
    shape=_shape,
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
    parts, texts = Form.read(form), Texts(slots, settings)
    if not texts.rows:
        return
    row = LogitsRow.of_texts(logits, texts, target)
    if parts.penalises or parts.changes:
        row, change = _changed(row, parts, seen, bias, mask)
        yield change
    picks = Scratch(4 * row.block_count * row.count, Storage.U32)
    yield scan_and_pick(row, picks)
    if parts.draws:
        limit = yield from filtered(row, parts, 0, 0, 0)
        yield pick(row, 0, 0, 0, positions, limit, picks)
    if parts.lists:
        yield from listed(row, TOPS_MAX, positions, drawn)
    chosen, _ = row.binds("rows_merge")
    forgets = {} if parts.remembers else {"remember": ";"}
    declares = {"RING": RING, "RINGED": pairs_of(parts), **row.declares("rows_merge"), **forgets}
    yield Dispatch(
        kernel("rows_merge", **row.lanes(LANES_MERGING), **declares),
        blocks=row.blocks,
        picks=picks,
        seen=None if forgets else seen,
        tokens=tokens,
        positions=positions,
        drawn=drawn,
        block_count=row.block_count,
        base=0,
        vocabulary=row.vocabulary,
        groups=(1, row.count, 1),
        slots=chosen,
    )


def _changed(
    row: LogitsRow, form: Form, seen: Operand, bias: Operand, mask: Operand
) -> tuple[LogitsRow, Dispatch]:
    """The rows as their logits are written anew, and what does that."""
    anew = Scratch(row.logits.numel)
    absent = {
        "seen_of": None if form.remembers else "0u",
        "bias_of": None if form.biases else "0.0",
        "word_of": None if form.masks else "0xffffffffu",
    }
    declares = {name: text for name, text in absent.items() if text}
    slots, settings = row.binds("rows_change")
    change = Dispatch(
        kernel("rows_change", **row.declares("rows_change"), **declares),
        logits=row.logits,
        seen=None if "seen_of" in declares else seen,
        bias=bias if form.biases else None,
        mask=mask if form.masks else None,
        anew=anew,
        vocabulary=row.vocabulary,
        base=0,
        mask_words=mask_words(row.vocabulary),
        groups=(-(-row.vocabulary // _WORKGROUP), row.count, 1),
        slots=slots,
        settings=settings,
    )
    return row.written(anew), change
