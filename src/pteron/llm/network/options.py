"""What a program of a language model is built for."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.errors import InputError
from pteron.llm.arguments import integer

FOUR_BITS = ("4w", "8da4w")  # of weights
IN_GROUPS = "8g"  # 8-bit weights in groups
QUANTIZATIONS = (*FOUR_BITS, "8w", IN_GROUPS)
AUTO = "auto"  # 8g for checkpoints with matrices of integers in groups
# How weights are rounded to 4 bits: with searched scales (HQQ), or with scales from a group's largest weight.
ROUNDINGS = ("nearest", "extremes")


IMAGE = "image"  # the method of a vision encoder
LONGEST = "get_longest_context_len"  # the method of a program that returns its longest context


@dataclass(frozen=True)
class Options:
    """See `export_llm`."""

    quantize: str | None = "4w"
    group_size: int = 32
    embedding_bits: int | None = 4
    max_seq_len: int = 128  # tokens of one call
    max_context_len: int = 2048  # tokens in the KV cache, if none are chosen at load
    longest_context: int | None = None  # the most that may be chosen; None: max_context_len
    force_fp16: bool = False
    full_logits: bool = False
    rounding: str = "nearest"

    @property
    def has_grouped_layers(self) -> bool:
        """Whether the matrices of layers have weights in groups."""
        return self.quantize in (*FOUR_BITS, IN_GROUPS)

    @property
    def has_groups(self) -> bool:
        """Whether some matrix has weights in groups."""
        return self.has_grouped_layers or self.embedding_bits is not None

    def check(self) -> None:
        """Raise an InputError for values that no program can have."""
        if self.quantize not in (None, *QUANTIZATIONS):
            raise InputError(f"quantize must be {', '.join(QUANTIZATIONS)} or None, not {self.quantize!r}")
        if self.rounding not in ROUNDINGS:
            raise InputError(f"rounding must be {', '.join(ROUNDINGS)}, not {self.rounding!r}")
        if self.rounding != "nearest" and self.quantize not in FOUR_BITS:
            raise InputError(
                f"rounding {self.rounding!r} needs 4-bit weights (quantize {' or '.join(FOUR_BITS)}), "
                f"not quantize {self.quantize or 'none'}"
            )
        for name in ("group_size", "max_seq_len", "max_context_len"):
            integer(name, getattr(self, name))
        if self.embedding_bits not in (None, 4, 8):
            raise InputError(f"embedding_bits must be 4, 8 or None, not {self.embedding_bits}")
        if not 1 < self.max_seq_len < self.max_context_len:
            raise InputError(
                f"max_seq_len {self.max_seq_len} must be at least 2 and less than max_context_len "
                f"{self.max_context_len}"
            )
        if self.longest_context is not None and self.longest_context < self.max_context_len:
            raise InputError(
                f"longest_context {self.longest_context} must be at least max_context_len "
                f"{self.max_context_len}"
            )
        if self.has_groups and self.group_size < 2:
            raise InputError(f"group_size must be at least 2, not {self.group_size}; 32 is usual")
        if (self.quantize == IN_GROUPS or self.embedding_bits == 8) and self.group_size % 8:
            raise InputError(f"group_size of 8-bit weights must be a multiple of 8, not {self.group_size}")
