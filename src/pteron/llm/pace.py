"""How many steps of a loop a submission takes."""

from __future__ import annotations

from dataclasses import dataclass

STEPS_MAX = 12  # of a submission, no more than the sampler's RING
SECONDS_MAX = 0.016  # for the steps of a submission: tokens come as smoothly as screens show them


@dataclass(slots=True)
class Pace:
    """How many steps the next submission takes: more each time, as long as they take no time to speak of, and
    half as many again at most: the GPU is not to wait while the host prepares them. A model keeps its pace:
    only its first loop has to find it."""

    steps: int = 1

    def took(self, count: int, seconds: float) -> None:
        """So many steps took that long."""
        fitting = int(count * SECONDS_MAX / max(seconds, 1e-9))
        more = self.steps + max(1, self.steps // 2)
        self.steps = max(1, min(more, STEPS_MAX, fitting))
