"""Benchmark results: samples of seconds by workload and device, and their JSON files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pteron.errors import InputError

PERCENTILES = (50, 90, 95, 99)
CONTROL = "control: small copies, each waited for"  # measures the machine itself
_VERSION = 1
_FILE_BYTES_MAX = 1 << 26


@dataclass(frozen=True, slots=True)
class Case:
    """The samples of one workload on one device. A sample is the seconds of one run of `amount` calls or
    tokens."""

    program: str
    what: str
    inputs: tuple[str, ...]
    device: str
    unit: str  # "call" or "token"
    amount: int
    rounds: int  # with equally many samples each; the other cases ran in between
    samples: tuple[float, ...]

    @property
    def round_medians(self) -> list[float]:
        return [float(np.median(part)) for part in np.array_split(self.samples, self.rounds)]

    @property
    def name(self) -> str:
        given = f" ({', '.join(self.inputs)})" if self.inputs else ""
        return f"{self.program}, {self.what}{given}" if self.program else self.what

    @property
    def key(self) -> tuple[object, ...]:
        """Cases with equal keys are comparable."""
        return self.program, self.what, self.inputs, self.device, self.unit, self.amount

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.samples, percent))

    @property
    def mean(self) -> float:
        return float(np.mean(self.samples))

    @property
    def least(self) -> float:
        return min(self.samples)

    @property
    def rate(self) -> float:
        """Calls or tokens per second, by the median."""
        return self.amount / self.percentile(50)


@dataclass(frozen=True, slots=True)
class Bench:
    """All cases of one `pteron bench`."""

    cases: tuple[Case, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        cases = [
            {**{name: getattr(case, name) for name in _FIELDS}, "samples": list(case.samples)}
            for case in self.cases
        ]
        content = {"pteron_bench": _VERSION, "cases": cases}
        Path(path).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Bench:
        """The content of a file that `save` wrote; an InputError for any other file."""
        try:
            if Path(path).stat().st_size > _FILE_BYTES_MAX:
                raise ValueError("the file is too large")
            content = json.loads(Path(path).read_text("utf-8"))
            if content["pteron_bench"] != _VERSION:
                raise ValueError(f"its version is {content['pteron_bench']}, expected {_VERSION}")
            return cls(tuple(map(_case, content["cases"])))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"{error.strerror}" if isinstance(error, OSError) else f"{error}"
            raise InputError(f"{path} is not a result of `pteron bench`: {problem}") from None


_FIELDS = ("program", "what", "inputs", "device", "unit", "amount", "rounds")


def _case(content: dict[str, Any]) -> Case:
    samples = tuple(float(sample) for sample in content["samples"])
    if not samples or not all(np.isfinite(samples)) or min(samples) <= 0:
        raise ValueError(f"case {content['what']!r} has no samples that are times")
    amount, rounds = int(content["amount"]), int(content["rounds"])
    if amount < 1 or not 1 <= rounds <= len(samples):
        raise ValueError(f"case {content['what']!r} has {len(samples)} samples in {rounds} rounds")
    texts = {name: str(content[name]) for name in ("program", "what", "device", "unit")}
    return Case(
        **texts,
        inputs=tuple(map(str, content["inputs"])),
        amount=amount,
        rounds=rounds,
        samples=samples,
    )
