"""Settings -> what a sampler's graph is made of, and the numbers that it is given with every call.

Samplers whose settings differ in numbers alone share a form: one graph, one plan, no kernel of its own.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, fields

from pteron.llm.sampling.settings import Sampling

REACH = 50.0  # as in lib/sample.wgsl
DIVISORS = (2.0**-100, 2.0**100)  # temperatures and penalties: draws no longer change beyond these
AMOUNTS = (-1e30, 1e30)  # what is taken from logits for one token


@dataclass(frozen=True, slots=True)
class Form:
    """Which parts a sampler's graph has."""

    draws: bool = False  # by chance; else it takes the likeliest
    narrows: bool = False  # to the top_k likeliest
    shares: bool = False  # to the likeliest that reach top_p
    penalises: bool = False  # what was there
    counts: bool = False  # how often each token was drawn, for penalties
    biases: bool = False  # adds to logits by token
    masks: bool = False  # takes only the tokens of a mask
    lists: bool = False  # the likeliest tokens with every draw

    @classmethod
    def of(cls, sampling: Sampling, vocabulary: int, *, masks: bool = False) -> Form:
        draws = sampling.temperature > 0
        return cls(
            draws=draws,
            narrows=draws and 0 < sampling.top_k < vocabulary,
            shares=draws and sampling.top_p < 1,
            penalises=sampling.repetition_penalty != 1,
            counts=sampling.presence_penalty != 0 or sampling.frequency_penalty != 0,
            biases=bool(sampling.biases),
            masks=masks,
            lists=sampling.top_logprobs > 0,
        )

    @classmethod
    def read(cls, words: str) -> Form:
        """The form that `words` tells of."""
        return cls(**dict.fromkeys(words.split(), True))

    @property
    def words(self) -> str:
        """Its parts, as an argument of an operator."""
        return " ".join(field.name for field in fields(self) if getattr(self, field.name))

    @property
    def remembers(self) -> bool:
        """Whether it has to know what was seen."""
        return self.penalises or self.counts

    @property
    def changes(self) -> bool:
        """Whether logits are changed by more than what was seen."""
        return self.counts or self.biases or self.masks

    @property
    def is_plain(self) -> bool:
        """Whether it takes the likeliest token of the logits as they come, and tells nothing else."""
        return self == Form()


def numbers(sampling: Sampling) -> tuple[int, ...]:
    """The numbers of a call, in the order of the operator's arguments; those with a fraction as the bits of
    an f32."""
    log_min_p = max(math.log(sampling.min_p), -REACH) if sampling.min_p > 0 else -REACH
    return (
        sampling.seed,
        bits(_within(sampling.temperature, DIVISORS)),
        min(sampling.top_k, (1 << 31) - 1),
        bits(sampling.top_p),
        bits(log_min_p),
        bits(_within(sampling.repetition_penalty, DIVISORS)),
        bits(_within(sampling.presence_penalty, AMOUNTS)),
        bits(_within(sampling.frequency_penalty, AMOUNTS)),
        sampling.top_logprobs,
    )


def bits(value: float) -> int:
    """The bits of a number as an f32, as an i32."""
    found: int = struct.unpack("<i", struct.pack("<f", value))[0]
    return found


def _within(value: float, bounds: tuple[float, float]) -> float:
    least, most = bounds
    return min(max(value, least), most)
