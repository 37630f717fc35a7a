"""The last row of logits, or those of several texts, as the sampler's kernels look at them: their blocks, and
what changes their logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pteron.llm.sampling.form import Form
from pteron.llm.sampling.texts import Texts
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target
from pteron.ops.dispatch import Bound
from pteron.ops.row_layout import shared_rows
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

LANES, LANES_OF_A_CPU = 256, 32  # where barriers are costly, fewer meet at one
BLOCK = 2048  # tokens per workgroup


@dataclass(frozen=True, slots=True, eq=False)
class LogitsRow:
    """The last row of logits, or one for each of several texts, with what draws see in place of them."""

    logits: Operand
    seen: Operand | None  # None: nothing is penalised by the kernels that look at it
    penalty: AnyInt  # the bits of an f32
    anew: Scratch | None  # logits as they were written anew, penalties and all
    blocks: Scratch
    target: Target
    texts: Texts | None = None  # None: there is one

    @classmethod
    def of(
        cls, logits: Operand, target: Target, *, seen: Operand | None = None, penalty: AnyInt = 0
    ) -> LogitsRow:
        blocks = Scratch(4 * -(-logits.shape[-1] // BLOCK))
        return cls(logits, seen, penalty if seen else 0, None, blocks, target)

    @classmethod
    def of_texts(cls, logits: Operand, texts: Texts, target: Target) -> LogitsRow:
        """A row for each of several texts."""
        blocks = Scratch(4 * -(-logits.shape[-1] // BLOCK) * texts.rows)
        return cls(logits, None, 0, None, blocks, target, texts)

    def lanes(self, most: int) -> dict[str, Any]:
        """Declarations of a kernel whose workgroups have so many lanes, fewer on a CPU."""
        layout = shared_rows(self.target, min(most, LANES_OF_A_CPU) if self.target.is_cpu else most, 1)
        return {**layout, "use_best": "best_subgroup"} if "use_rows" in layout else layout

    @property
    def vocabulary(self) -> int:
        return self.logits.shape[-1]

    @property
    def count(self) -> int:
        """How many texts there are."""
        return self.texts.rows if self.texts else 1

    @property
    def base(self) -> int:
        return 0 if self.texts else self.logits.numel - self.vocabulary

    @property
    def block(self) -> int:
        return BLOCK

    @property
    def block_count(self) -> int:
        return -(-self.vocabulary // BLOCK)

    def declares(self, name: str, counts: bool | None = None) -> dict[str, object]:
        """Declarations of a kernel by how many texts there are."""
        return self.texts.declares(name, self.block_count, counts) if self.texts else {}

    def binds(self, name: str) -> tuple[Operand | None, Operand | None]:
        """The slots and the settings that a kernel looks at, where there are several texts."""
        return self.texts.binds(name) if self.texts else (None, None)

    def changed(
        self,
        form: Form,
        seen: Operand,
        bias: Operand,
        mask: Operand,
        presence: AnyInt,
        frequency: AnyInt,
    ) -> tuple[LogitsRow, Dispatch]:
        """The row as its logits are written anew by all that a form names, and what does that."""
        anew = Scratch(self.logits.numel)
        absent = {
            "was_seen": None if form.penalises else "false",
            "times_drawn": None if form.counts else "0u",
            "bias_of": None if form.biases else "0.0",
            "is_allowed": None if form.masks else "true",
        }
        change = Dispatch(
            kernel("sample_change", **{name: text for name, text in absent.items() if text}),
            logits=self.logits,
            seen=seen if form.remembers else None,
            bias=bias if form.biases else None,
            mask=mask if form.masks else None,
            anew=anew,
            vocabulary=self.vocabulary,
            base=self.base,
            penalty=self.penalty,
            presence=presence if form.counts else 0,
            frequency=frequency if form.counts else 0,
            threads=self.vocabulary,
        )
        return self.written(anew), change

    def written(self, anew: Scratch) -> LogitsRow:
        """The same, whose logits were written anew."""
        return replace(self, seen=None, penalty=0, anew=anew)

    def look(
        self,
        name: str,
        limit: Operand | Scratch | None = None,
        *,
        declares: Mapping[str, object] = MappingProxyType({}),
        **arguments: Bound | AnyInt | float,
    ) -> Dispatch:
        """A kernel over all blocks that sees logits up to the place in `limit`, where there is one."""
        slots, settings = self.binds(name)
        is_scan, is_pick = name == "sample_scan", name == "sample_pick"
        # Others look at logits that were written anew alone, these two also at them as they came.
        beside = {"anew": self.anew} if is_scan else {"raw": self.logits} if is_pick else {}
        return Dispatch(
            kernel(name, **self.lanes(LANES), **{**self._seeing(name, limit), **declares}),
            logits=self.logits if is_scan or self.anew is None else self.anew,
            seen=self.seen,
            blocks=self.blocks,
            limit=limit,
            vocabulary=self.vocabulary,
            base=self.base,
            block=BLOCK,
            penalty=self.penalty,
            groups=(self.block_count, self.count, 1),
            slots=slots,
            settings=settings,
            # Operands and parameters, by the kernel's own names.
            **{**(beside if self.anew else {}), **arguments},  # type: ignore[arg-type]
        )

    def _seeing(self, name: str, limit: Operand | Scratch | None) -> dict[str, object]:
        """Declarations of a kernel by what it sees of logits: all or those up to a limit, as they came, with
        penalties or written anew."""
        is_scan = name == "sample_scan"
        found = self.declares(name)
        if self.seen is None:
            found["was_seen"] = "false"
        if is_scan and self.anew:
            found["drawn_from"] = "anew[base + min(token, params.vocabulary - 1u)]"
        elif is_scan and self.seen is None:
            found |= {"greatest_logit": "most_penalised", "logit_of": "bitcast<f32>(best.x)"}
        if name == "sample_pick" and not self.anew:
            found["logit_of"] = "finite(f32(logits[base + token]))"
        if limit is None and not is_scan:
            found["last_place"] = "0xffffffffu"
        return found
