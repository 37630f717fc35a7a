"""Speed of compiled models at batch 1, in f32 and f16: vision models at 224² and encoders.

    python benchmarks/compiled.py export FOLDER             writes the programs (extra `export`)
    python benchmarks/compiled.py run FOLDER [--torch] [--profile MODEL]
    python benchmarks/compiled.py xnnpack FOLDER            beside ExecuTorch's XNNPACK, on this machine's CPU

`--only MODEL ...` names some of them. `run` prints, for each model: the time of a call whose output is read
back, of calls that follow one another with outputs left on the GPU, the GPU's own time and its floor
(operations at the GPU's rate), dispatches, and the largest difference from float64 PyTorch. With --torch,
PyTorch's times on CUDA beside it: eager, compiled, and compiled with CUDA graphs, TF32 off. Weights are drawn
by name and shape, in few distinct values that repeat, so that both sides have the same ones and files
compress well: `run` takes `.pte.xz` files too.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from breakdown import by_kernel, gpu_seconds
from floors import rates_of
from torch.utils.flop_counter import FlopCounterMode

import pteron
from pteron.gpu import Replay, submit

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "examples"), str(ROOT / "tests")]

from models.efficientnet import EfficientNet  # noqa: E402
from models.minilm import MiniLM  # noqa: E402
from networks.sequences import AudioEncoder, Bert  # noqa: E402
from networks.vision import MobileNetV3Small, ResNet18, VisionTransformer  # noqa: E402

PERIOD = 4099  # values of a large tensor, after which they repeat


def image() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32))


def tokens(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(2).integers(0, 30522, shape))


def bert_inputs() -> tuple[torch.Tensor, ...]:
    words = tokens(1, 128)
    return words, torch.zeros_like(words), torch.ones_like(words)


def spectrogram() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).standard_normal((1, 80, 3000)).astype(np.float32))


# The model, and the arguments of a call.
MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "resnet18": (lambda: ResNet18(64, 1000), lambda: (image(),)),
    "mobilenet_v3_small": (lambda: MobileNetV3Small(1000), lambda: (image(),)),
    "efficientnet_lite0": (EfficientNet, lambda: (image(),)),
    "vit_b16": (lambda: VisionTransformer(224, 16, 768, 12, 12, 1000), lambda: (image(),)),
    "bert_base": (lambda: Bert(30522, 512, 768, 12, 12), bert_inputs),
    "minilm": (MiniLM, lambda: (tokens(128),)),
    "whisper_tiny_encoder": (lambda: AudioEncoder(80, 3000, 384, 6, 4), lambda: (spectrogram(),)),
}


def build(name: str) -> torch.nn.Module:
    """A model in eval mode with weights that depend on its parameters' names alone."""
    model = MODELS[name][0]().eval()
    parameters = {name for name, _ in model.named_parameters()}
    for key, value in model.state_dict().items():
        if key not in parameters and not key.endswith(("running_mean", "running_var")):
            continue
        seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "little")
        random = np.random.default_rng(seed)
        count = min(value.numel(), PERIOD + seed % 101)
        if key.endswith("running_var") or (value.ndim == 1 and key.endswith("weight")):
            drawn = random.integers(12, 20, count) / 16
        elif value.ndim == 1:
            drawn = random.integers(-4, 5, count) / 64
        else:
            fan_in = value[0].numel()
            drawn = random.integers(-7, 8, count) / 4.3 * (2 / fan_in) ** 0.5
        values = np.resize(drawn, value.shape)
        value.copy_(torch.from_numpy(values).to(value.dtype))
    return model


def export(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for kind in ("f32", "f16"):
            compiled = pteron.compile(build(name), MODELS[name][1](), force_fp16=kind == "f16")
            print(compiled)
            compiled.save(folder / f"{name}_{kind}.pte")
            compiled.close()


def program(folder: Path, name: str, kind: str) -> Path:
    """The program's file, unpacked if only a packed one is there."""
    path = folder / f"{name}_{kind}.pte"
    packed = path.with_name(f"{path.name}.xz")
    if not path.exists() and packed.exists():
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    if not path.exists():
        raise SystemExit(
            f"{path} does not exist: python benchmarks/compiled.py export {folder} --only {name}"
        )
    return path


def operations(name: str) -> float:
    """Floating-point operations of a call: products, a fused multiply-add being two."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        build(name)(*MODELS[name][1]())
    return float(counter.get_total_flops())


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


def run(folder: Path, names: list[str], with_torch: bool, profiled: str | None) -> None:
    for name in names:
        inputs = MODELS[name][1]()
        with torch.no_grad():
            exact = outputs(
                build(name).double()(*(x.double() if x.is_floating_point() else x for x in inputs))
            )
        for kind in ("f32", "f16"):
            measure(program(folder, name, kind), inputs, exact, operations(name), profiled == name)
        if with_torch:
            measure_torch(name)


def outputs(result: Any) -> list[np.ndarray]:
    return [each.numpy() for each in (result if isinstance(result, tuple) else (result,))]


def measure(
    path: Path, inputs: tuple[torch.Tensor, ...], exact: list[np.ndarray], flops: float, is_profiled: bool
) -> None:
    method = pteron.load(path)["forward"]
    device = method.device
    arguments = [x.numpy() for x in inputs]
    found = [np.asarray(out, np.float64) for out in method(*arguments)]
    error = max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, exact, strict=True))
    before = method.counters.dispatches, method.counters.calls
    waiting = times(lambda: method(*arguments)[0])
    dispatches = (method.counters.dispatches - before[0]) / (method.counters.calls - before[1])
    started = time.perf_counter()
    repeats = 200
    for _ in range(repeats):
        method(*arguments, on_gpu=True)
    device.wait()
    streamed = (time.perf_counter() - started) / repeats
    print(
        f"{path.stem:24} on {device.adapter.name} by {device.adapter.library.name}: "
        f"{statistics.median(waiting) * 1e3:7.3f} ms a call "
        f"(least {min(waiting) * 1e3:.3f}), {streamed * 1e3:7.3f} ms following one another, "
        f"{dispatches:.0f} dispatches; {error:.1e} from float64",
        flush=True,
    )
    if "timestamp-query" not in device.adapter.features:
        return
    plan, replay = method.sole_delegate.recorded(arguments)
    rates = rates_of(device.adapter.name)
    floor = f"; its products at {rates.f32 / 1e12:.0f} TFLOP/s {flops / rates.f32 * 1e3:.3f}" if rates else ""
    print(f"    GPU {gpu_seconds(device, replay.launches, replay) * 1e3:.3f} ms{floor}")
    if is_profiled:
        by_kernel(device, plan, replay, path.stem)


def measure_torch(name: str) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for kind, dtype in (("f32", torch.float32), ("f16", torch.float16)):
        model = build(name).cuda().to(dtype)
        inputs = [x.cuda().to(dtype if x.is_floating_point() else x.dtype) for x in MODELS[name][1]()]
        ways = {
            "eager": model,
            "compiled": torch.compile(model),
            "compiled, CUDA graphs": torch.compile(model, mode="reduce-overhead"),
        }
        for way, call in ways.items():
            with torch.inference_mode():
                waiting = times(lambda call=call, inputs=inputs: first(call(*inputs)).cpu())
                call(*inputs)
                torch.cuda.synchronize()
                started = time.perf_counter()
                for _ in range(200):
                    call(*inputs)
                torch.cuda.synchronize()
                streamed = (time.perf_counter() - started) / 200
            print(
                f"    PyTorch {kind} {way:22} {statistics.median(waiting) * 1e3:7.3f} ms a call "
                f"(least {min(waiting) * 1e3:.3f}), {streamed * 1e3:7.3f} ms following one another",
                flush=True,
            )
            torch._dynamo.reset()


def first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def beside_xnnpack(folder: Path, names: list[str]) -> None:
    """Process time of calls in turn, so that all see the same machine, and how many times the others' ours
    is; then our slowest launches."""
    from executorch.runtime import Runtime

    for name in names:
        path, inputs = folder / f"{name}_xnnpack.pte", MODELS[name][1]()
        if not path.exists():
            path.write_bytes(lower_for_xnnpack(build(name), inputs))
        theirs = Runtime.get().load_program(path).load_method("forward")
        method = pteron.load(program(folder, name, "f32"))["forward"]
        arguments = [x.numpy() for x in inputs]
        calls: dict[str, Callable[[], Any]] = {
            "Pteron": partial(method, *arguments),
            "XNNPACK": partial(theirs.execute, list(inputs)),
            "eager PyTorch": partial(build(name), *inputs),
        }
        seconds: dict[str, list[float]] = {way: [] for way in calls}
        with torch.inference_mode():
            for _ in range(6):
                for way, call in calls.items():
                    started = time.process_time()
                    call()
                    seconds[way].append(time.process_time() - started)
        ours, expected = np.asarray(calls["Pteron"]()[0]), calls["XNNPACK"]()[0]
        error = np.abs(ours - expected.numpy()).max() / expected.abs().max().item()
        least = {way: min(each) for way, each in seconds.items()}
        listed = ", ".join(
            f"{way} {each * 1e3:.0f} ms ({least['Pteron'] / each:.1f})" for way, each in least.items()
        )
        print(
            f"{name} on {method.device.adapter.name}, process time: {listed}; {error:.1e} apart", flush=True
        )
        print_slowest(method, arguments)


def lower_for_xnnpack(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model, inputs)
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    return bytes(edge.to_executorch().buffer)


def print_slowest(method: Any, arguments: list[np.ndarray], count: int = 3) -> None:
    """The launches that take longest, each alone and waited for, and what they compute."""
    plan, replay = method.sole_delegate.recorded(arguments)
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
    known = f"some of {', '.join(MODELS)}"
    parser.add_argument(
        "--only", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL", help=known
    )
    parser.add_argument("--torch", action="store_true", help="PyTorch on CUDA beside it")
    parser.add_argument("--profile", choices=MODELS, metavar="MODEL", help="break its calls down by kernel")
    arguments = parser.parse_args()
    if arguments.torch and not torch.cuda.is_available():
        parser.error("--torch measures PyTorch on CUDA, which is not here; on a CPU: xnnpack")
    if arguments.what == "export":
        export(arguments.folder, arguments.only)
    elif arguments.what == "run":
        run(arguments.folder, arguments.only, arguments.torch, arguments.profile)
    else:
        beside_xnnpack(arguments.folder, arguments.only)


if __name__ == "__main__":
    main()
