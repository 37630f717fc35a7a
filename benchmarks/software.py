"""Process time of a language model's tokens on the software adapter, side by side with other source trees.

    python benchmarks/software.py PROGRAM.pte [--against FOLDER] [--prefill 64] [--tokens 8] [--torch]
                                  [--xnnpack OTHER.pte] [--rewrites] [--profile] [--save FILE]

Wall time means little on shared cores: these are seconds of all threads of a process. Each side is a process
of its own, they take turns, and the least of all rounds counts. FOLDER holds another version of the package;
--torch adds PyTorch's eager interpretation of the same graph in f32, --xnnpack ExecuTorch's XNNPACK, on a
program of the same shape (xnnpack_program.py). --rewrites adds the same program without each rewrite that
changes it, and without all; --profile shows a step of either kind by kernel.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import figures
import numpy as np
from figures import Figure

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--against", help="a folder with another version of the package")
    parser.add_argument("--prefill", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=8, help="decoded in a row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--xnnpack", metavar="OTHER", help="a program of the same shape for XNNPACK")
    parser.add_argument("--rewrites", action="store_true", help="each that changes the program off in turn")
    parser.add_argument("--profile", action="store_true", help="break steps down by kernel instead")
    parser.add_argument("--save", help="a file to add the figures to")
    parser.add_argument("--serve", choices=("pteron", "torch", "xnnpack"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.program, arguments.serve, arguments.prefill, arguments.tokens)
        return
    if arguments.profile:
        for count in (1, arguments.prefill):
            profile(arguments.program, count, position=arguments.prefill)
        return
    sides = {"now": Side(arguments, "pteron", ROOT / "src")}
    if arguments.against:
        sides["before"] = Side(arguments, "pteron", Path(arguments.against))
    if arguments.torch:
        sides["PyTorch eager"] = Side(arguments, "torch", ROOT / "src")
    if arguments.xnnpack:
        sides["XNNPACK, f32"] = Side(arguments, "xnnpack", ROOT / "src", program=arguments.xnnpack)
    for switched in rewrites_of(arguments.program) if arguments.rewrites else ():
        sides[f"PTERON_REWRITES={switched}"] = Side(arguments, "pteron", ROOT / "src", rewrites=switched)
    rounds = [{name: side.measure() for name, side in sides.items()} for _ in range(arguments.rounds)]
    print(
        f"| process ms a token | prefill {arguments.prefill} | decode | decode / prefill "
        "| of now's: prefill, decode |"
    )
    print("|---|---|---|---|---|")
    least = {name: [min(times[name][kind] for times in rounds) * 1e3 for kind in (0, 1)] for name in sides}
    for name, (prefill, decode) in least.items():
        relative = f"{prefill / least['now'][0]:.2f}, {decode / least['now'][1]:.2f}"
        print(f"| {name} | {prefill:.2f} | {decode:.2f} | {decode / prefill:.1f} | {relative} |")
    if arguments.save:
        model = Path(arguments.program).stem
        kinds = (f"prefill {arguments.prefill}", "decode")
        times = {kind: [1e3 * times["now"][index] for times in rounds] for index, kind in enumerate(kinds)}
        figures.add(
            arguments.save,
            f"software adapter, {figures.processor()}",
            [Figure.of(f"{model}: {kind}", samples, "process ms a token") for kind, samples in times.items()],
        )


class Side:
    """A child process that measures on request."""

    def __init__(
        self, arguments: argparse.Namespace, kind: str, source: Path, rewrites: str = "", program: str = ""
    ) -> None:
        sizes = ["--prefill", str(arguments.prefill), "--tokens", str(arguments.tokens)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, program or arguments.program, "--serve", kind, *sizes],
            env={**os.environ, "PYTHONPATH": str(source), "PTERON_REWRITES": rewrites},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self) -> tuple[float, float]:
        """Process seconds of a token of a prefill, and of a decoded one."""
        assert self._process.stdin
        assert self._process.stdout
        print("go", file=self._process.stdin, flush=True)
        prefill, decode = self._process.stdout.readline().split()
        return float(prefill), float(decode)


def rewrites_of(program: str) -> Iterator[str]:
    """What switches off each rewrite without which the program would have other calls, and then all."""
    import pteron
    from pteron.ops.rewrite import REWRITES
    from pteron.passes import prepare

    graph = pteron.load(program).graphs("forward")[0]
    with_all = len(prepare(graph, list(REWRITES)).calls)
    for name in REWRITES:
        others = [other for other in REWRITES if other != name]
        if len(prepare(graph, others).calls) != with_all:
            yield f"-{name}"
    yield "none"


def profile(program: str, count: int, position: int) -> None:
    """Process time by kernel and grid: the dispatches of each kind alone, repeated."""
    import pteron
    from pteron.gpu import Replay, submit
    from pteron.llm.model import LanguageModel

    model = LanguageModel(pteron.load(program))
    assert model.delegate is not None
    inputs = np.full((1, count), 5, np.int64), np.array([position], np.int64)
    plan, replay = model.delegate.recorded(inputs)
    kinds: dict[str, list[Any]] = {}
    for launch, step in zip(plan.launches, replay.launches, strict=True):
        kinds.setdefault(f"{launch.module.kernel.name} {launch.operator} {launch.groups}", []).append(step)

    def spent(steps: list[Any], repeats: int) -> float:
        started = time.process_time()
        submit(model.device, [Replay(steps * repeats, replay.kept)])
        model.device.wait()
        return (time.process_time() - started) / repeats

    spent(replay.launches, 1)  # compiles
    rows = []
    for kind, steps in kinds.items():
        repeats = max(1, min(200 // len(steps), int(0.1 / spent(steps, 1))))
        rows.append((min(spent(steps, repeats) for _ in range(3)), len(steps), kind))
    whole = min(spent(replay.launches, 1) for _ in range(3))
    print(f"{count} tokens at position {position}: {whole * 1e3:.1f} ms of process time, by kernel:")
    for seconds, steps, kind in sorted(rows, reverse=True):
        print(f"  {seconds * 1e3:8.2f} ms  {steps:4} x {seconds / steps * 1e6:8.1f} µs  {kind}")


def serve(program: str, kind: str, count: int, tokens: int) -> None:
    """Answer each line of input with the process seconds of a token of either kind."""
    step = {"pteron": pteron_step, "torch": torch_step, "xnnpack": xnnpack_step}[kind](program, count)
    step([5] * count, 0)  # compiles, unpacks
    step([5], count)
    ids = np.random.default_rng(0).integers(3, 1000, count).tolist()
    for _ in sys.stdin:
        started = time.process_time()
        step(ids, 0)
        prefilled = time.process_time()
        for position in range(tokens):
            step(ids[:1], count + position)
        decoded = time.process_time()
        print((prefilled - started) / count, (decoded - prefilled) / tokens, flush=True)


def pteron_step(program: str, count: int) -> Callable[[list[int], int], None]:
    import pteron
    from pteron.llm.model import LanguageModel

    model = LanguageModel(pteron.load(program))

    def step(ids: list[int], position: int) -> None:
        model.position = position
        model.submit(ids)
        model.device.wait()

    return step


def torch_step(program: str, count: int) -> Callable[[list[int], int], None]:
    import torch
    from torch_reference import TorchReference

    import pteron

    graph = pteron.load(program).graphs("forward")[0]
    eager = TorchReference(graph, torch.float32, "cpu")
    return lambda ids, position: eager(torch.tensor([ids]), position)


def xnnpack_step(program: str, count: int) -> Callable[[list[int], int], None]:
    import torch
    from executorch.extension.pybindings import portable_lib  # noqa: F401  # before what registers with it

    import_module("executorch.extension.llm.custom_ops.custom_ops")  # attention over a cache
    from executorch.runtime import Runtime

    loaded = Runtime.get().load_program(program)
    method = loaded.load_method("forward")
    return lambda ids, position: method.execute((torch.tensor([ids]), torch.tensor([position])))


if __name__ == "__main__":
    main()
