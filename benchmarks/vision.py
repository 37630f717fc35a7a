"""Speed of vision models at batch 1, 224²: ResNet-18, MobileNetV3-small, EfficientNet-lite0, in f32 and f16.

    python benchmarks/vision.py export FOLDER             writes the programs (extra `export`)
    python benchmarks/vision.py run FOLDER [--torch] [--profile MODEL]
    python benchmarks/vision.py xnnpack FOLDER            beside ExecuTorch's XNNPACK, on this machine's CPU

`run` prints, for each model: the time of a call whose output is read back, of calls that follow one another
with outputs left on the GPU, the GPU's own time, dispatches, and the largest difference from float64 PyTorch.
With --torch, PyTorch's times on CUDA beside it: eager, compiled, and compiled with CUDA graphs, TF32 off.
Weights are drawn by name and shape, in few distinct values, so that both sides have the same ones and files
compress well.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pteron
from pteron.gpu import PassTimer, Replay, submit

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "examples"), str(ROOT / "tests")]

from models.efficientnet import EfficientNet  # noqa: E402
from networks.vision import MobileNetV3Small, ResNet18  # noqa: E402

MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "resnet18": lambda: ResNet18(64, 1000),
    "mobilenet_v3_small": lambda: MobileNetV3Small(1000),
    "efficientnet_lite0": EfficientNet,
}


def build(name: str) -> torch.nn.Module:
    """A model in eval mode with weights that depend on its parameters' names alone."""
    model = MODELS[name]().eval()
    for key, value in model.state_dict().items():
        if not value.is_floating_point():
            continue
        seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "little")
        random = np.random.default_rng(seed)
        if key.endswith("running_var") or (value.ndim == 1 and key.endswith("weight")):
            drawn = random.integers(12, 20, value.shape) / 16
        elif value.ndim == 1:
            drawn = random.integers(-4, 5, value.shape) / 64
        else:
            fan_in = value[0].numel()
            drawn = random.integers(-7, 8, value.shape) / 4.3 * (2 / fan_in) ** 0.5
        value.copy_(torch.from_numpy(np.asarray(drawn)).to(value.dtype))
    return model


def image() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32))


def export(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        for kind in ("f32", "f16"):
            compiled = pteron.compile(build(name), (image(),), force_fp16=kind == "f16")
            print(compiled)
            compiled.save(folder / f"{name}_{kind}.pte")
            compiled.close()


def times(call: Callable[[], Any], seconds: float = 1.0) -> list[float]:
    """Seconds of each call, after as long a time of load: an idle GPU runs at a fraction of its clock."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        call()
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return found


def run(folder: Path, with_torch: bool, profiled: str | None) -> None:
    for name in MODELS:
        with torch.no_grad():
            exact = build(name).double()(image().double()).numpy()
        for kind in ("f32", "f16"):
            measure(folder / f"{name}_{kind}.pte", exact, profiled == name)
        if with_torch:
            measure_torch(name)


def measure(path: Path, exact: np.ndarray, is_profiled: bool) -> None:
    method = pteron.load(path)["forward"]
    device = method.device
    x = image().numpy()
    (out,) = method(x)
    error = np.abs(np.asarray(out, np.float64) - exact).max() / np.abs(exact).max()
    before = method.counters.dispatches, method.counters.calls
    waiting = times(lambda: method(x)[0])
    dispatches = (method.counters.dispatches - before[0]) / (method.counters.calls - before[1])
    started = time.perf_counter()
    repeats = 200
    for _ in range(repeats):
        method(x, on_gpu=True)
    device.wait()
    streamed = (time.perf_counter() - started) / repeats
    print(
        f"{path.stem:24} on {device.adapter.name}: {statistics.median(waiting) * 1e3:7.3f} ms a call "
        f"(least {min(waiting) * 1e3:.3f}), {streamed * 1e3:7.3f} ms following one another, "
        f"{dispatches:.0f} dispatches; {error:.1e} from float64",
        flush=True,
    )
    profile(method, x, is_profiled)


def profile(method: Any, x: np.ndarray, is_profiled: bool) -> None:
    """GPU time of the whole graph; by kernel and grid, the dispatches of each kind repeated in one pass."""
    device = method.device
    if "timestamp-query" not in device.adapter.features:
        return
    plan, replay = method.sole_delegate.recorded((x,))
    whole = []
    for _ in range(8):
        timer = PassTimer(device, 1)
        submit(device, [Replay(list(replay.launches) * 20, replay.kept)], timer)
        whole.append(timer.seconds()[0] / 20)
    print(f"    GPU {min(whole) * 1e3:.3f} ms")
    if not is_profiled:
        return
    kinds: dict[str, list[Any]] = {}
    for launch, step in zip(plan.launches, replay.launches, strict=True):
        kinds.setdefault(f"{launch.module.kernel.name} {launch.operator} {launch.groups}", []).append(step)
    rows = []
    for kind, some in kinds.items():
        repeats = max(1, 400 // len(some))
        found = []
        for _ in range(4):
            timer = PassTimer(device, 1)
            submit(device, [Replay(some * repeats, replay.kept)], timer)
            found.append(timer.seconds()[0] / repeats)
        rows.append((min(found), len(some), kind))
    total = sum(row[0] for row in rows)
    for seconds, count, kind in sorted(rows, reverse=True)[:40]:
        each = seconds / count
        print(f"  {seconds * 1e6:9.1f} µs  {seconds / total:5.1%}  {count:4} x {each * 1e6:8.2f} µs  {kind}")


def measure_torch(name: str) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for kind, dtype in (("f32", torch.float32), ("f16", torch.float16)):
        model = build(name).cuda().to(dtype)
        x = image().cuda().to(dtype)
        ways = {
            "eager": model,
            "compiled": torch.compile(model),
            "compiled, CUDA graphs": torch.compile(model, mode="reduce-overhead"),
        }
        for way, call in ways.items():
            with torch.inference_mode():
                waiting = times(lambda call=call, x=x: call(x).cpu())
                call(x)
                torch.cuda.synchronize()
                started = time.perf_counter()
                for _ in range(200):
                    call(x)
                torch.cuda.synchronize()
                streamed = (time.perf_counter() - started) / 200
            print(
                f"    PyTorch {kind} {way:22} {statistics.median(waiting) * 1e3:7.3f} ms a call "
                f"(least {min(waiting) * 1e3:.3f}), {streamed * 1e3:7.3f} ms following one another",
                flush=True,
            )
            torch._dynamo.reset()


def beside_xnnpack(folder: Path) -> None:
    """Calls of either runtime in turn, so that both see the same machine; then our slowest launches."""
    from executorch.runtime import Runtime

    for name in MODELS:
        path = folder / f"{name}_xnnpack.pte"
        if not path.exists():
            path.write_bytes(lower_for_xnnpack(build(name), image()))
        theirs = Runtime.get().load_program(path).load_method("forward")
        method = pteron.load(folder / f"{name}_f32.pte")["forward"]
        x = image()
        ours_times, their_times = [], []
        for _ in range(6):
            started = time.perf_counter()
            (ours,) = method(x.numpy())
            between = time.perf_counter()
            (expected,) = theirs.execute([x])
            ours_times.append(between - started)
            their_times.append(time.perf_counter() - between)
        error = np.abs(np.asarray(ours) - expected.numpy()).max() / expected.abs().max().item()
        ratio = statistics.median(ours_times[1:]) / statistics.median(their_times[1:])
        print(
            f"{name}: Pteron on {method.device.adapter.name} "
            f"{statistics.median(ours_times[1:]) * 1e3:.1f} ms, XNNPACK "
            f"{statistics.median(their_times[1:]) * 1e3:.1f} ms: {ratio:.1f} times; {error:.1e} apart",
            flush=True,
        )
        print_slowest(method, x.numpy())


def lower_for_xnnpack(model: torch.nn.Module, x: torch.Tensor) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model, (x,))
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    return bytes(edge.to_executorch().buffer)


def print_slowest(method: Any, x: np.ndarray, count: int = 3) -> None:
    """The launches that take longest, each alone and waited for, and what they compute."""
    plan, replay = method.sole_delegate.recorded((x,))
    rows = []
    for launch, step in zip(plan.launches, replay.launches, strict=True):
        found = []
        for _ in range(3):
            started = time.perf_counter()
            submit(method.device, [Replay([step], replay.kept)])
            method.device.wait()
            found.append(time.perf_counter() - started)
        rows.append((min(found), launch))
    total = sum(seconds for seconds, _ in rows)
    for seconds, launch in sorted(rows, key=lambda row: -row[0])[:count]:
        print(
            f"    {seconds * 1e3:7.2f} ms, {seconds / total:.0%}: node {launch.node} {launch.operator} by "
            f"{launch.module.kernel.name}, {launch.groups} workgroups",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["export", "run", "xnnpack"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--profile", choices=MODELS)
    arguments = parser.parse_args()
    if arguments.what == "export":
        export(arguments.folder)
    elif arguments.what == "run":
        run(arguments.folder, arguments.torch, arguments.profile)
    else:
        beside_xnnpack(arguments.folder)


if __name__ == "__main__":
    main()
