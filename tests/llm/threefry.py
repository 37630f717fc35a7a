"""Threefry-2x32 with 20 rounds, in NumPy: the words that the sampler's noise is made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry(
    seed: int, step: int, token: int | npt.NDArray[np.int_], counter: int = 0
) -> tuple[Words, Words]:
    """The two words of a key (seed, step) and a counter (token, counter)."""
    first, second, third = (np.uint32(word) for word in (seed, step, seed ^ step ^ 0x1BD11BDA))
    keys = (first, second, third)
    with np.errstate(over="ignore"):
        a, b = np.asarray(token, np.uint32) + first, np.asarray(counter, np.uint32) + second
        for group in range(5):
            for rotation in ROTATIONS[4 * (group % 2) : 4 * (group % 2) + 4]:
                a = a + b
                b = (b << np.uint32(rotation) | b >> np.uint32(32 - rotation)) ^ a
            a, b = a + keys[(group + 1) % 3], b + keys[(group + 2) % 3] + np.uint32(group + 1)
    return np.asarray(a), np.asarray(b)
