"""How many decode steps to put into one submission."""

from __future__ import annotations

from dataclasses import dataclass

STEPS_MAX = 12  # per submission, no more than the sampler's RING
SECONDS_MAX = 0.016  # per submission: tokens arrive as smoothly as a screen shows them


@dataclass(slots=True)
class Pace:
    """The number of steps in the next submission. It grows until a submission takes SECONDS_MAX, and by at
    most half each time: the GPU must not idle while the host prepares a longer submission. All sequences of a
    model share one Pace, so only its first generation adapts it."""

    steps: int = 1

    def update(self, count: int, seconds: float) -> None:
        """Adapt to a submission of `count` steps that took `seconds`."""
        fitting = int(count * SECONDS_MAX / max(seconds, 1e-9))
        more = self.steps + max(1, self.steps // 2)
        self.steps = max(1, min(more, STEPS_MAX, fitting))
