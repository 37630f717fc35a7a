"""The sampling options, each stated once: checks, command line, HTTP, generation_config.json and the numbers
of samplers follow from this table."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pteron.errors import InputError
from pteron.llm.arguments import integer, number

TOPS_MAX = 20  # the most top_logprobs
REACH = 50.0  # as in lib/sample.wgsl
SEED_MAX = (1 << 31) - 1
FINITE = sys.float_info.max
_DIVISORS = (2.0**-100, 2.0**100)  # draws do not change beyond it
_AMOUNTS = (-1e30, 1e30)  # subtracted from logits


@dataclass(frozen=True, slots=True)
class Range:
    least: float
    most: float
    is_open: bool = False  # without `least`

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most and not (self.is_open and value == self.least)

    def __str__(self) -> str:
        if self.least <= -FINITE:
            return "finite"
        least = f"above {self.least:g}" if self.is_open else f"{self.least:g} or more"
        if self.most >= FINITE:
            return f"{least} and finite" if self.most == FINITE else least
        return f"{least} and at most {self.most:g}" if self.is_open else f"from {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class SamplingOption:
    default: float  # an int for integers
    range: Range
    metavar: str  # on the command line
    help: str
    kept: tuple[float, float] | None = None  # range of the number that a sampler has; None: the same
    http: Range | None = None  # over HTTP; None: the same
    is_random: bool = False  # has no effect at temperature 0
    is_logarithm: bool = False  # the number that a sampler has

    def word(self, value: float) -> int:
        """The number that a sampler has; fractions as the bits of an f32."""
        if type(self.default) is int:
            return min(int(value), SEED_MAX)
        if self.is_logarithm:
            value = math.log(value) if value > 0 else -math.inf
        least, most = self.kept or (self.range.least, self.range.most)
        return bits(min(max(value, least), most))


# In the order of a call's numbers and of the words of a slot's settings (lib/settings.wgsl).
OPTIONS = {
    "seed": SamplingOption(0, Range(0, SEED_MAX), "N", "seed of the sampler", is_random=True),
    "temperature": SamplingOption(
        0.0, Range(0, math.inf), "T", "0 always takes the most likely token", _DIVISORS, Range(0, 2)
    ),
    "top_k": SamplingOption(
        0,
        Range(0, math.inf),
        "K",
        "sample from the K most likely tokens; 0: from all",
        http=Range(-1, math.inf),  # some clients send -1 for "all"
        is_random=True,
    ),
    "top_p": SamplingOption(
        1.0,
        Range(0, 1, is_open=True),
        "P",
        "sample from the most likely tokens whose probabilities sum to P",
        is_random=True,
    ),
    "min_p": SamplingOption(
        0.0,
        Range(0, 1),
        "P",
        "sample from tokens at least P times as likely as the first",
        (-REACH, 0.0),
        is_random=True,
        is_logarithm=True,
    ),
    "repetition_penalty": SamplingOption(
        1.0, Range(0, FINITE, is_open=True), "R", "above 1: tokens of the text become less likely", _DIVISORS
    ),
    "presence_penalty": SamplingOption(
        0.0,
        Range(-FINITE, FINITE),
        "A",
        "subtract A from the logits of generated tokens",
        _AMOUNTS,
        Range(-2, 2),
    ),
    "frequency_penalty": SamplingOption(
        0.0,
        Range(-FINITE, FINITE),
        "A",
        "the same, times how often a token was generated",
        _AMOUNTS,
        Range(-2, 2),
    ),
    "top_logprobs": SamplingOption(
        0, Range(0, TOPS_MAX), "N", "likeliest tokens returned with each drawn one"
    ),
}
# What generation_config.json sets, and what only if its `do_sample` is true.
_RECOMMENDED, _IF_SAMPLING = ("repetition_penalty",), ("temperature", "top_k", "top_p", "min_p")


def bits(value: float) -> int:
    """The bits of an f32, as an i32."""
    found: int = struct.unpack("<i", struct.pack("<f", value))[0]
    return found


def check_options(given: Mapping[str, Any], shown: object) -> dict[str, float]:
    """The values of all options, in their types; errors show `shown`."""
    found: dict[str, float] = {}
    for name, option in OPTIONS.items():
        found[name] = (integer if type(option.default) is int else number)(name, given[name])
        if found[name] not in option.range:
            raise InputError(f"{name} must be {option.range}: {str(shown)[:400]}")  # there may be many biases
    return found


def recommended_options(generation: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a generation_config.json recommends."""
    names = (*_IF_SAMPLING, *_RECOMMENDED) if generation.get("do_sample") is True else _RECOMMENDED
    return {name: generation[name] for name in names if generation.get(name) is not None}
