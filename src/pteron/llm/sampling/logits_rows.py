"""Rows of logits as the sampler's kernels read them, and their launches.

There is one row, the last of the logits, or one row for each sequence of a `Batch`. Both use the same
kernels, which find a row, its slot and its settings by what a launch binds (lib/row.wgsl, slot.wgsl,
settings.wgsl).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from pteron.llm.sampling.form import Form
from pteron.llm.sampling_options import OPTIONS
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target
from pteron.ops.row_layout import shared_rows
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

LANES, LANES_CPU = 256, 32  # barriers are expensive on a CPU: fewer lanes
BLOCK = 2048  # tokens per workgroup
_CHANGE_WORKGROUP = 64  # of sample_change.wgsl

# Words of a slot's settings, as lib/settings.wgsl names them: `form.numbers` in order, the position of
# the token whose logits give the first draw, and whether tokens are drawn at random.
SETTINGS_WORDS = 12
FIRST = len(OPTIONS)
DRAWS = FIRST + 1

# The numbers of a call, by option. In a batch they are in the settings of each slot, and 0 here.
Numbers: TypeAlias = Mapping[str, AnyInt]
NO_NUMBERS: Numbers = dict.fromkeys(OPTIONS, 0)

# What kernels read of a batch; the others, nothing.
_SLOTS, _SETTINGS = ("slots",), ("slots", "settings")
_OF_BATCH = {
    **dict.fromkeys(("sample_list_merge", "sample_merge"), _SLOTS),
    **dict.fromkeys(("sample_change", "sample_tally", "sample_narrow", "sample_pick"), _SETTINGS),
}


class Batch(NamedTuple):
    """The rows of a batched step: `slots` has the slot of each row, `settings` the numbers of every slot."""

    slots: Operand
    settings: Operand


@dataclass(frozen=True, slots=True, eq=False)
class LogitsRows:
    """The last row of logits, or one row for each sequence of a batch, before or after logits processors."""

    logits: Operand
    seen: Operand | None  # for the repetition penalty; None: kernels that read logits apply none
    penalty: AnyInt  # the bits of an f32
    changed_logits: Scratch | None  # by `apply_processors`
    blocks: Scratch
    target: Target
    batch: Batch | None = None  # None: one row

    @classmethod
    def of(
        cls,
        logits: Operand,
        target: Target,
        *,
        seen: Operand | None = None,
        penalty: AnyInt = 0,
        batch: Batch | None = None,
    ) -> LogitsRows:
        rows = batch.slots.numel if batch else 1
        blocks = Scratch(4 * -(-logits.shape[-1] // BLOCK) * rows)
        return cls(logits, seen, penalty if seen else 0, None, blocks, target, batch)

    def lanes(self, most: int) -> dict[str, Any]:
        """Overrides of a kernel with `most` lanes per workgroup, fewer on a CPU."""
        return shared_rows(self.target, min(most, LANES_CPU) if self.target.is_cpu else most, 1)

    @property
    def vocabulary(self) -> int:
        return int(self.logits.shape[-1])

    @property
    def count(self) -> AnyInt:
        return self.batch.slots.numel if self.batch else 1

    @property
    def base(self) -> AnyInt:
        return 0 if self.batch else self.logits.numel - self.vocabulary

    @property
    def block_count(self) -> int:
        return -(-self.vocabulary // BLOCK)

    def place(self, name: str) -> dict[str, Any]:
        """What tells a kernel which row of a batch a workgroup takes; {} for one row."""
        if not self.batch:
            return {}
        operands = {each: getattr(self.batch, each) for each in _OF_BATCH.get(name, ())}
        slots = {"SLOTS": self.batch.settings.shape[0]} if operands else {}
        return {"IS_BATCH": True, "BLOCKS": self.block_count, **slots, **operands}

    def apply_processors(
        self, form: Form, seen: Operand, bias: Operand, mask: Operand, mask_words: int, numbers: Numbers
    ) -> tuple[LogitsRows, Dispatch]:
        """The rows after all logits processors, and the dispatch that runs them."""
        changed = Scratch(self.logits.numel)
        change = Dispatch(
            kernel("sample_change"),
            **self.place("sample_change"),
            logits=self.logits,
            seen=seen if form.counts_tokens else None,
            bias=bias if form.has_biases else None,
            mask=mask if form.has_mask else None,
            changed_logits=changed,
            vocabulary=self.vocabulary,
            base=self.base,
            mask_words=mask_words,
            penalty=numbers["repetition_penalty"],
            presence=numbers["presence_penalty"],
            frequency=numbers["frequency_penalty"],
            groups=(-(-self.vocabulary // _CHANGE_WORKGROUP), self.count, 1),
        )
        return replace(self, seen=None, penalty=0, changed_logits=changed), change

    def dispatch_blocks(
        self, name: str, limit: Operand | Scratch | None = None, **arguments: Any
    ) -> Dispatch:
        """A kernel over all blocks, which leaves out logits after the place in `limit`, if given."""
        is_scan, is_pick = name == "sample_scan", name == "sample_pick"
        # These two read the unchanged logits as well, all others only the changed ones.
        beside = (
            {"changed_logits": self.changed_logits} if is_scan else {"raw": self.logits} if is_pick else {}
        )
        return Dispatch(
            kernel(name),
            **self.lanes(LANES),
            **self.place(name),
            logits=self.logits if is_scan or self.changed_logits is None else self.changed_logits,
            seen=self.seen,
            blocks=self.blocks,
            limit=limit,
            vocabulary=self.vocabulary,
            base=self.base,
            block=BLOCK,
            penalty=self.penalty,
            groups=(self.block_count, self.count, 1),
            **(beside if self.changed_logits else {}),
            **arguments,
        )

    def dispatch_rows(self, name: str, **arguments: Any) -> Dispatch:
        """A kernel with one workgroup per row, which reduces what kernels over blocks wrote."""
        return Dispatch(
            kernel(name),
            **self.place(name),
            block_count=self.block_count,
            groups=(1, self.count, 1),
            **arguments,
        )
