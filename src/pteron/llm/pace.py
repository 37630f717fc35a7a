"""How many decode steps a submission takes."""

from __future__ import annotations

from dataclasses import dataclass

STEPS_MAX = 12  # per submission, no more than the sampler's RING
SECONDS_MAX = 0.016  # per submission: tokens arrive as smoothly as a screen shows them


@dataclass(slots=True)
class Pace:
    """The number of steps of the next submission. It grows by half at most, while a submission stays within
    SECONDS_MAX: the GPU must not wait while the host prepares a longer one. All sequences of a model share
    its pace, so only the first generation has to find it."""

    steps: int = 1

    def update(self, count: int, seconds: float) -> None:
        """Note that `count` steps took `seconds`."""
        fitting = int(count * SECONDS_MAX / max(seconds, 1e-9))
        more = self.steps + max(1, self.steps // 2)
        self.steps = max(1, min(more, STEPS_MAX, fitting))
