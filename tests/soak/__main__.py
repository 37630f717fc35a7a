"""The command: scripts/soak --help."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection

from soak.memory import Growth, Sample, growths
from soak.rounds import Rounds
from soak.server import load

SAMPLES = 60
ROUNDS_BETWEEN = 10  # samples, at least: each of them closes everything
BYTES_PER_ROUND = 1024.0  # of resident memory, that the allocator's own unrest may come to


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description="Rounds of mixed use; memory must stay flat."
    )
    parser.add_argument("rounds", nargs="?", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of what chance decides (0)")
    parser.add_argument(
        "--only", default="", help="kinds of rounds, with commas between, such as call,interrupt"
    )
    parser.add_argument("--server", type=float, metavar="MINUTES", help="a server under mixed load instead")
    arguments = parser.parse_args()
    if arguments.server:
        return load(arguments.server, arguments.seed)
    only = [name for name in arguments.only.split(",") if name]
    samples, found, rounds = soak(arguments.rounds, arguments.seed, only=only, is_told=True)
    print(", ".join(f"{count} {name}" for name, count in rounds.done.most_common()))
    for sample in samples[:: max(1, len(samples) // 12)]:
        print(
            f"after {sample.rounds:6,}: {sample.resident / 2**20:8.1f} MiB resident, {sample.buffers:,} "
            f"bytes of buffers, {sample.uploads} uploads, {sample.files} files, {sample.threads} threads"
        )
    print(*found, sep="\n")
    return 0 if all(growth.is_flat for growth in found) else 1


def soak(
    count: int,
    seed: int,
    *,
    questions_max: int = 100,
    bytes_per_round: float = BYTES_PER_ROUND,
    only: Collection[str] = (),
    is_told: bool = False,
) -> tuple[list[Sample], list[Growth], Rounds]:
    """Run rounds; the samples taken, what they grew by, and what was done."""
    began = time.monotonic()
    rounds = Rounds(seed, questions_max, only)
    samples = []
    stretch = max(ROUNDS_BETWEEN, count // SAMPLES)
    for number in range(1, count + 1):
        rounds.round()
        if number % stretch == 0 or number == count:
            rounds.rest()
            samples.append(Sample.take(number, rounds.device))
            if is_told and len(samples) % 10 == 0:
                print(
                    f"{number:,} rounds in {time.monotonic() - began:.0f} s, every answer right", flush=True
                )
    return samples, growths(samples, bytes_per_round), rounds


if __name__ == "__main__":
    sys.exit(main())
