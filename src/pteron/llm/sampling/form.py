"""Settings -> the form of a sampler's graph and the numbers of its calls; bytes -> draws.

Samplers whose settings differ only in numbers have the same form, so they share graph, plan and kernels.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields

from pteron.llm.sampling.settings import Sampling
from pteron.llm.sampling_options import OPTIONS, TOPS_MAX

RING = 16  # draws that a sequence keeps on the GPU
ROWS_MAX = RING  # tokens of a sequence that are drawn from the rows of one call


@dataclass(frozen=True, slots=True)
class Form:
    """The logits processors and filters in a sampler's graph."""

    is_random: bool = False  # draws at random; else it takes the likeliest token
    has_top_k: bool = False
    has_top_p: bool = False
    has_repetition_penalty: bool = False
    has_count_penalties: bool = False  # presence or frequency penalty
    has_biases: bool = False
    has_mask: bool = False  # of a grammar
    has_top_logprobs: bool = False

    @classmethod
    def of(cls, sampling: Sampling, vocabulary: int, *, masked: bool = False) -> Form:
        is_random = sampling.temperature > 0
        return cls(
            is_random=is_random,
            has_top_k=is_random and 0 < sampling.top_k < vocabulary,
            has_top_p=is_random and sampling.top_p < 1,
            has_repetition_penalty=sampling.repetition_penalty != 1,
            has_count_penalties=sampling.presence_penalty != 0 or sampling.frequency_penalty != 0,
            has_biases=bool(sampling.biases),
            has_mask=masked,
            has_top_logprobs=sampling.top_logprobs > 0,
        )

    @classmethod
    def parse(cls, flags: str) -> Form:
        return cls(**dict.fromkeys(flags.split(), True))

    @property
    def flags(self) -> str:
        """The names of its true fields: an argument of the operator."""
        return " ".join(field.name for field in fields(self) if getattr(self, field.name))

    @property
    def counts_tokens(self) -> bool:
        """Whether the sampler keeps token counts."""
        return self.has_repetition_penalty or self.has_count_penalties

    @property
    def changes_logits(self) -> bool:
        """Whether logits are changed by more than a repetition penalty."""
        return self.has_count_penalties or self.has_biases or self.has_mask

    @property
    def is_plain(self) -> bool:
        """Whether it takes the likeliest token of unchanged logits, without a list."""
        return self == Form()

    @property
    def pairs(self) -> int:
        """Pairs of words per sequence in `drawn`: RING draws, then a list of TOPS_MAX for each of them."""
        return RING * (1 + TOPS_MAX) if self.has_top_logprobs else RING


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn token and its log-probability under the model. `top` has the `Sampling.top_logprobs` likeliest
    tokens and their log-probabilities, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def read_drawn(data: bytes, start: int, step: int, tops: int) -> Drawn:
    """The draw of a step with its `tops` likeliest tokens, from the bytes of `drawn`; its sequence begins at
    `start`."""
    token, logprob = struct.unpack_from("<if", data, start + 8 * (step % RING))
    if not tops:
        return Drawn(token, logprob)
    first = start + 8 * (RING + TOPS_MAX * (step % RING))
    pairs = struct.iter_unpack("<if", data[first : first + 8 * tops])
    return Drawn(token, logprob, tuple((token, logprob) for token, logprob in pairs if token >= 0))


def numbers(sampling: Sampling) -> tuple[int, ...]:
    """The numbers of a call, in the order of the operator's arguments."""
    return tuple(option.word(getattr(sampling, name)) for name, option in OPTIONS.items())
