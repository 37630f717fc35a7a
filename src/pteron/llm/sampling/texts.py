"""Several texts at once: how the sampler's kernels find what belongs to each (lib/texts_of_rows.wgsl)."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.ops import Operand

# Words of a slot's settings, as lib/settings_of_rows.wgsl names them: the numbers of form.py in their order,
# the position of the token whose logits make the first draw, and whether it draws by chance.
SETTINGS = 12
FIRST, DRAWS = 9, 10

_SKIPPED = {  # where a kernel leaves a text alone, by what it searches for
    "pick": "!is_drawing(group)",
    "counts": "!is_drawing(group) || setting(group, TOP_K) <= 0",
    "share": "!is_drawing(group) || fraction(group, TOP_P) >= 1.0",
}
_TEMPERATURE = {"temperature_of": "fraction(group, TEMPERATURE)"}
_NUMBERS: dict[str, dict[str, str]] = {
    "sample_tally": _TEMPERATURE,
    "sample_narrow": {"top_p_of": "fraction(group, TOP_P)"},
    "sample_pick": {
        **_TEMPERATURE,
        "log_min_p_of": "fraction(group, LOG_MIN_P)",
        "seed_of": "u32(setting(group, SEED))",
        "step_of": "u32(steps[slot_of(group)] - setting(group, FIRST))",
        "is_left_alone": _SKIPPED["pick"],
    },
}


_LIBRARIES = {
    **dict.fromkeys(("sample_tell", "rows_merge"), "slots_of_rows"),
    **dict.fromkeys(("sample_tally", "sample_narrow", "sample_pick", "rows_change"), "settings_of_rows"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """The rows of a step: `slots` names the text of each, `settings` has the numbers of every slot."""

    slots: Operand
    settings: Operand

    @property
    def rows(self) -> int:
        return self.slots.numel

    @property
    def slot_count(self) -> int:
        return self.settings.shape[0]

    def binds(self, name: str) -> tuple[Operand | None, Operand | None]:
        """Which of `slots` and `settings` a kernel looks at."""
        library = _LIBRARIES.get(name)
        return self.slots if library else None, self.settings if library == "settings_of_rows" else None

    def declares(self, name: str, blocks: int, counts: bool | None = None) -> dict[str, object]:
        """Declarations of a kernel, which `counts` tokens, or adds up shares, where it searches."""
        found: dict[str, object] = {"use_texts": "texts_of_rows", "BLOCKS": blocks, **_NUMBERS.get(name, {})}
        if name in _LIBRARIES:
            found |= {"use_slots": _LIBRARIES[name], "SLOTS": self.slot_count}
        if counts is not None:
            found["is_left_alone"] = _SKIPPED["counts" if counts else "share"]
        if name == "sample_narrow":
            found["top_k_of"] = "setting(group, TOP_K)" if counts else "0"
        return found
