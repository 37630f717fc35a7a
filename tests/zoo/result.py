"""What is known of an architecture after it was compiled and called."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

RATIO_MAX = 3.0  # the error may be this many times eager float32's
ERROR_MIN = 1e-6  # a relative error up to this is right: eight roundings of float32
ERROR_WITHOUT_EAGER = 1e-4  # allowed where there is no float64 reference
HALF = 2**13  # how much coarser float16 is than float32


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
    sources: str = ""  # a digest of Pteron's sources

    @property
    def is_exact(self) -> bool:
        """Whether the error is within the ratio, without the allowance of ERROR_MIN."""
        return self.error is not None and self.eager is not None and self.error <= RATIO_MAX * self.eager

    @property
    def is_allowed(self) -> bool:
        assert self.error is not None
        if not math.isfinite(self.error):
            return False
        if self.eager is None:
            return self.error <= ERROR_WITHOUT_EAGER
        return self.is_exact or self.error <= ERROR_MIN

    @property
    def is_whole(self) -> bool:
        return self.outcome == "right" and self.delegates == 1 and not self.host

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class StockResult(Result):
    """Of a program that ExecuTorch's own partitioner made. A further outcome is "not exported", with its own
    or PyTorch's error as the reason; `compiled` is what `pteron.compile` makes of the module then."""

    operators: list[str] = field(default_factory=list)  # different ones, in delegates
    is_half: bool = False
    is_quantized: bool = False
    states: int = 0  # bytes on the GPU
    launches: int = 0  # of the last call
    call_ms: float = 0.0
    compiled: str = ""

    @property
    def is_allowed(self) -> bool:
        if self.error is None or not self.is_half:
            return super().is_allowed
        return math.isfinite(self.error) and (self.is_exact or self.error <= ERROR_MIN * HALF)
