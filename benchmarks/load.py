"""From the start of a process to the first token, and where that time goes.

    python benchmarks/load.py PROGRAM.pte [--runs 3] [--cold] [--save FILE]

Each run is its own process. With --cold each run is made twice: with empty caches, of Pteron and of NVIDIA's
and Mesa's drivers, and again with what the first left. Python's bytecode is cached, as after an installation.
Parts overlap where threads do.
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
COPIED = 10e9  # bytes a second that one core copies
POINTS = ("imports", "opened", "ready", "first token")
CACHES = ("PTERON_CACHE", "__GL_SHADER_DISK_CACHE_PATH", "MESA_SHADER_CACHE_DIR")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="each run with empty caches, then with full ones")
    parser.add_argument("--save", help="a file to add the figures to")
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.program, arguments.child)
        return
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    cold, warm = [], []
    with tempfile.TemporaryDirectory() as compiled:
        environment.setdefault("PYTHONPYCACHEPREFIX", compiled)  # the sources may be read-only
        run_child(arguments.program, environment)
        for run in range(arguments.runs):
            with tempfile.TemporaryDirectory() as empty:
                if arguments.cold:
                    environment |= dict.fromkeys(CACHES, empty)
                    cold.append(run_child(arguments.program, environment))
                    show(f"run {run}, empty caches", cold[-1])
                warm.append(run_child(arguments.program, environment))
                show(f"run {run}", warm[-1])
    if arguments.save:
        save(arguments.save, warm, cold, os.path.getsize(arguments.program))


def run_child(program: str, environment: dict[str, str]) -> dict[str, Any]:
    """What a child process measures."""
    command = [sys.executable, __file__, program, "--child", repr(time.time())]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def show(name: str, measured: dict[str, Any]) -> None:
    points = ", ".join(f"{name} {seconds:.2f}" for name, seconds in measured["points"].items())
    print(f"{name}: seconds from the start: {points}")
    parts = sorted(measured["parts"].items(), key=lambda part: -part[1])
    print("    " + ", ".join(f"{name} {seconds:.3f}" for name, seconds in parts), flush=True)


def save(path: str, warm: list[dict[str, Any]], cold: list[dict[str, Any]], size: int) -> None:
    """Add the points to a file of figures: with full caches and, where measured, with empty ones."""
    from figures import HOST_TOLERANCE, Figure, add

    floor = {"ready": size / COPIED}
    figures = [
        Figure.of(
            f"{name}: {point}",
            [run["points"][point] for run in runs],
            "s",
            floor.get(point),
            tolerance=HOST_TOLERANCE,
        )
        for name, runs in (("load", warm), ("load, cold", cold))
        for point in POINTS
        if runs
    ]
    add(path, warm[0]["machine"], figures)


def child(path: str, started: float) -> None:
    """Load, read a prompt, draw three tokens; print the time of each, and by part."""
    points = {"interpreter": time.time() - started}
    import pteron
    from pteron.format import source
    from pteron.gpu import device, memory, open_device, recording
    from pteron.llm.engine.generate import generate_step
    from pteron.llm.model import LanguageModel
    from pteron.llm.sampling import Sampler, Sampling
    from pteron.plan import Compiled
    from pteron.runtime import program as programs

    points["imports"] = time.time() - started
    parts: Counter[str] = Counter()
    measure(parts, "drivers and adapters", device, "choose")
    measure(parts, "opening the device, in a thread", open_device, "_request")
    measure(parts, "waiting for it", device.Device, "check_open")
    measure(parts, "graph: reading", programs, "read_graphs")
    measure(parts, "graph: preparing", programs, "prepare")
    measure(parts, "planning", Compiled, "plan_at_maximum")
    measure(parts, "planning", Compiled, "plan")
    measure(parts, "kernels, by all threads", device.Device, "_compile")
    measure(parts, "reading, by all threads", source, "read_into")
    measure(parts, "uploading, by all threads", device.Device, "write")
    measure(parts, "allocating, by all threads", device.Device, "create_buffer")
    measure(parts, "weights", memory.Weights, "upload")
    measure(parts, "binding", recording.Recording, "_bind")
    measure(parts, "recording, with kernels and weights", recording.Recording, "__init__")

    program = pteron.load(path)
    points["opened"] = time.time() - started
    model = LanguageModel(program)
    points["ready"] = time.time() - started
    tokens = [3 + 7 * index for index in range(PROMPT)]
    sampler = Sampler(model.device, model.vocabulary, Sampling(), model.logits_dtype)
    drawn = generate_step(model, sampler, tokens, 3)
    for name in ("first token", "second", "third"):
        next(drawn)
        points[name] = time.time() - started
    drawn.close()
    machine = str(model.device.adapter)
    print(json.dumps({"machine": machine, "points": points, "parts": parts}))


def measure(parts: Counter[str], name: str, owner: Any, attribute: str) -> None:
    """Count the time within a function."""
    original: Callable[..., Any] = getattr(owner, attribute)

    def measured(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return original(*arguments, **options)
        finally:
            parts[name] += time.perf_counter() - began

    setattr(owner, attribute, measured)


if __name__ == "__main__":
    main()
