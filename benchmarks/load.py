"""From the start of a process to the first token, and where that time goes.

    python benchmarks/load.py PROGRAM.pte [--runs 3]

Each run is a process of its own. The first may find empty caches (with --cold it does: PTERON_CACHE is a new
folder), the others find what it left. Parts overlap where threads do; "else" is what no part covers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

PROMPT = 16  # tokens that are read before the first is drawn


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="the first run finds an empty cache")
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.program, arguments.child)
        return
    environment = dict(os.environ)
    if arguments.cold:
        environment["PTERON_CACHE"] = tempfile.mkdtemp()
    for run in range(arguments.runs):
        command = [sys.executable, __file__, arguments.program, "--child", repr(time.time())]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        show(run, json.loads(done.stdout))


def show(run: int, measured: dict[str, dict[str, float]]) -> None:
    points = ", ".join(f"{name} {seconds:.2f}" for name, seconds in measured["points"].items())
    print(f"run {run}: seconds from the start: {points}")
    parts = sorted(measured["parts"].items(), key=lambda part: -part[1])
    print("    " + ", ".join(f"{name} {seconds:.3f}" for name, seconds in parts))


def child(path: str, started: float) -> None:
    """Load, read a prompt, draw two tokens; print the time of each, and by part."""
    points = {"interpreter": time.time() - started}
    import numpy as np

    points["NumPy"] = time.time() - started
    import pteron
    from pteron.gpu import device
    from pteron.gpu.recording import Recording
    from pteron.llm.generate import generate_step
    from pteron.llm.model import LanguageModel
    from pteron.llm.sampling import Sampler, Sampling
    from pteron.ops.operand import Weight
    from pteron.plan import Compiled
    from pteron.runtime import session

    points["imports"] = time.time() - started
    parts: Counter[str] = Counter()
    measure(parts, "opening the device", device.Device, "open")
    measure(parts, "graph", session, "prepare")
    measure(parts, "planning", Compiled, "plan_at_maximum")
    measure(parts, "planning", Compiled, "plan")
    measure(parts, "kernels, by all threads", device.Device, "_compile")
    measure(parts, "packing", Weight, "pack")
    measure(parts, "uploading", device.Device, "write")
    measure(parts, "recording, with kernels and weights", Recording, "__init__")

    program = pteron.load(path)
    points["opened"] = time.time() - started
    model = LanguageModel(program)
    points["ready"] = time.time() - started
    tokens = np.random.default_rng(0).integers(3, model.vocabulary, PROMPT).tolist()
    drawn = generate_step(
        model, Sampler(model.device, model.vocabulary, Sampling(), model.logits_dtype), tokens, 3
    )
    for name in ("first token", "second", "third"):
        next(drawn)
        points[name] = time.time() - started
    drawn.close()
    print(json.dumps({"points": points, "parts": parts}))


def measure(parts: Counter[str], name: str, owner: Any, attribute: str) -> None:
    """Count the time within a function, but for calls of it within itself."""
    original = getattr(owner, attribute)

    def measured(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return original(*arguments, **options)
        finally:
            parts[name] += time.perf_counter() - began

    chosen: Callable[..., Any] = (
        staticmethod(measured) if isinstance(owner, type) and attribute == "open" else measured
    )
    setattr(owner, attribute, chosen)


if __name__ == "__main__":
    main()
