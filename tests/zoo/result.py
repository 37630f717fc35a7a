"""What is known of an architecture after it was compiled and called."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

RATIO_MAX = 3.0  # the error may be this many times eager float32's


@dataclass
class Result:
    name: str
    outcome: str  # "right", "wrong", "refused", "timed out", "crashed", or "no model": PyTorch fails itself
    reason: str = ""
    gpu: int = 0  # operators
    host: int = 0
    delegates: int = 0
    left: list[list[Any]] = field(default_factory=list)  # [count, operator, reason] on the host
    error: float | None = None  # largest, of the largest value of each output, against float64
    eager: float | None = None  # the same of PyTorch in float32
    compile_s: float = 0.0

    @property
    def is_whole(self) -> bool:
        return self.outcome == "right" and self.delegates == 1 and not self.host

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
