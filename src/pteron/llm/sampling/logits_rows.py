"""Rows of logits as the sampler's kernels read them: their blocks, and the WGSL declarations to replace.

There is one row, the last of the logits, or one row for each sequence of a `Batch`. Both use the same
kernels: for a batch, the functions that find a row, a slot and its settings are replaced (lib/batch_*.wgsl).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from pteron.llm.sampling.form import Form
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target
from pteron.ops.dispatch import Bound
from pteron.ops.row_layout import shared_rows
from pteron.wgsl import Kernel, Kernels

kernel = Kernels(__name__)

LANES, LANES_CPU = 256, 32  # barriers are expensive on a CPU: fewer lanes
BLOCK = 2048  # tokens per workgroup
_CHANGE_WORKGROUP = 64  # of sample_change.wgsl

# Words of a slot's settings, as lib/batch_settings.wgsl names them: `form.numbers` in order, the position of
# the token whose logits give the first draw, and whether tokens are drawn at random.
SETTINGS_WORDS = 12
FIRST, DRAWS = 9, 10


class Numbers(NamedTuple):
    """The numbers of a call (`form.numbers`). In a batch they are in the settings of each slot, and these are
    0."""

    seed: AnyInt = 0
    temperature: AnyInt = 0
    top_k: AnyInt = 0
    top_p: AnyInt = 0
    log_min_p: AnyInt = 0
    penalty: AnyInt = 0
    presence: AnyInt = 0
    frequency: AnyInt = 0
    tops: AnyInt = 0


_SKIPPED = {  # when a kernel skips a row, by what it searches for
    "pick": "!is_drawing(group)",
    "top_k": "!is_drawing(group) || setting(group, TOP_K) <= 0",
    "top_p": "!is_drawing(group) || fraction(group, TOP_P) >= 1.0",
}
_TEMPERATURE = {"temperature_of": "fraction(group, TEMPERATURE)"}
_SETTINGS: dict[str, dict[str, str]] = {  # where kernels find a row's settings
    "sample_change": {
        "penalty_of": "fraction(group, PENALTY)",
        "presence_of": "fraction(group, PRESENCE)",
        "frequency_of": "fraction(group, FREQUENCY)",
    },
    "sample_tally": _TEMPERATURE,
    "sample_narrow": {"top_p_of": "fraction(group, TOP_P)"},
    "sample_pick": {
        **_TEMPERATURE,
        "log_min_p_of": "fraction(group, LOG_MIN_P)",
        "seed_of": "u32(setting(group, SEED))",
        "step_of": "u32(steps[slot_of(group)] - setting(group, FIRST))",
        "is_skipped": _SKIPPED["pick"],
    },
}
_LIBRARIES = {
    **dict.fromkeys(("sample_list_merge", "sample_merge"), "batch_slots"),
    **dict.fromkeys(_SETTINGS, "batch_settings"),
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
        """Declarations of a kernel with `most` lanes per workgroup, fewer on a CPU."""
        layout = shared_rows(self.target, min(most, LANES_CPU) if self.target.is_cpu else most, 1)
        return {**layout, "use_best": "best_subgroup"} if "BY_SUBGROUPS" in layout else layout

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

    def declares(self, name: str, is_top_k: bool | None = None) -> dict[str, object]:
        """Declarations of a kernel for a batch; {} for one row. `is_top_k` as in `search_limit`."""
        if not self.batch:
            return {}
        found: dict[str, object] = {
            "use_single_row": "batch_rows",
            "BLOCKS": self.block_count,
            **_SETTINGS.get(name, {}),
        }
        if name in _LIBRARIES:
            found |= {"use_single_slot": _LIBRARIES[name], "SLOTS": self.batch.settings.shape[0]}
        if is_top_k is not None:
            found["is_skipped"] = _SKIPPED["top_k" if is_top_k else "top_p"]
        if name == "sample_narrow":
            found["top_k_of"] = "setting(group, TOP_K)" if is_top_k else "0"
        return found

    def binds(self, name: str) -> dict[str, Any]:
        """The operands of a batch that a kernel reads: its slots and their settings."""
        names = {"batch_slots": ("slots",), "batch_settings": ("slots", "settings")}
        return {
            each: getattr(self.batch, each) for each in names.get(_LIBRARIES.get(name, ""), ()) if self.batch
        }

    def apply_processors(
        self, form: Form, seen: Operand, bias: Operand, mask: Operand, mask_words: int, numbers: Numbers
    ) -> tuple[LogitsRows, Dispatch]:
        """The rows after all logits processors, and the dispatch that runs them."""
        changed = Scratch(self.logits.numel)
        absent = {
            "seen_of": None if form.counts_tokens else "0u",
            "bias_of": None if form.has_biases else "0.0",
            "word_of": None if form.has_mask else "0xffffffffu",
        }
        declares = {name: text for name, text in absent.items() if text}
        change = Dispatch(
            kernel("sample_change", **self.declares("sample_change"), **declares),
            logits=self.logits,
            seen=seen if form.counts_tokens else None,
            bias=bias if form.has_biases else None,
            mask=mask if form.has_mask else None,
            changed_logits=changed,
            vocabulary=self.vocabulary,
            base=self.base,
            mask_words=mask_words,
            penalty=numbers.penalty,
            presence=numbers.presence,
            frequency=numbers.frequency,
            groups=(-(-self.vocabulary // _CHANGE_WORKGROUP), self.count, 1),
            **self.binds("sample_change"),
        )
        return replace(self, seen=None, penalty=0, changed_logits=changed), change

    def dispatch_blocks(
        self,
        name: str,
        limit: Operand | Scratch | None = None,
        *,
        declares: Mapping[str, object] = MappingProxyType({}),
        **arguments: Bound | AnyInt | float,
    ) -> Dispatch:
        """A kernel over all blocks, which leaves out logits after the place in `limit`, if given."""
        is_scan, is_pick = name == "sample_scan", name == "sample_pick"
        # These two read the unchanged logits as well, all others only the changed ones.
        beside = (
            {"changed_logits": self.changed_logits} if is_scan else {"raw": self.logits} if is_pick else {}
        )
        return Dispatch(
            kernel(name, **self.lanes(LANES), **{**self._block_declares(name, limit), **declares}),
            logits=self.logits if is_scan or self.changed_logits is None else self.changed_logits,
            seen=self.seen,
            blocks=self.blocks,
            limit=limit,
            vocabulary=self.vocabulary,
            base=self.base,
            block=BLOCK,
            penalty=self.penalty,
            groups=(self.block_count, self.count, 1),
            # Operands and parameters, by the kernel's own names.
            **{**self.binds(name), **(beside if self.changed_logits else {}), **arguments},
        )

    def dispatch_rows(self, used: Kernel, **arguments: Bound | AnyInt | None) -> Dispatch:
        """A kernel with one workgroup per row, which reduces what kernels over blocks wrote."""
        return Dispatch(
            used,
            block_count=self.block_count,
            base=self.base,
            vocabulary=self.vocabulary,
            groups=(1, self.count, 1),
            **self.binds(used.name),
            **arguments,  # type: ignore[arg-type]  # by the kernel's own names
        )

    def _block_declares(self, name: str, limit: Operand | Scratch | None) -> dict[str, object]:
        """Declarations of a kernel for the logits it reads: all or up to a limit; unchanged, penalised or
        changed."""
        is_scan = name == "sample_scan"
        found = self.declares(name)
        if self.seen is None:
            found["was_seen"] = "false"
        if is_scan and self.changed_logits:
            found["drawn_from"] = "changed_logits[base + min(token, params.vocabulary - 1u)]"
        elif is_scan and self.seen is None:
            found |= {"greatest_logit": "most_penalised", "logit_of": "bitcast<f32>(best.x)"}
        if name == "sample_pick" and not self.changed_logits:
            found["logit_of"] = "finite(f32(logits[base + token]))"
        if limit is None and not is_scan:
            found["last_place"] = "0xffffffffu"
        return found
