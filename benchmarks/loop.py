"""A loop over frames: upload, network and reading one after the other, and overlapped.

    python benchmarks/loop.py [--size 1024] [--channels 32] [--layers 4] [--classes 3] [--frames 300]
                              [--device NAME] [--save FILE]

The network is a chain of convolutions at half the resolution, whose last one goes back to the frame's: f32
frames of 3 x size x size in, classes x size x size out. A second program makes a mask of its output. Frames
differ from call to call. The first lines are the parts of a call, each waited for; choose sizes at which they
take about as long. Then the milliseconds per frame of each loop, and how many times as fast it is as the
first of its kind. Loops of a kind must give the same numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import figures
import numpy as np
from figures import HOST_TOLERANCE, Figure, percentile

from pteron.dtypes import DType
from pteron.format.records import DelegateCall, MethodRecord, TensorRecord
from pteron.gpu import Device, submit
from pteron.graph import Constant, Graph, Node, Tensor
from pteron.passes import prepare
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.method import Method

ARRAYS = 8  # in memory; frames take turns in them
WARM = 10  # frames in front of those that are measured
Layer = tuple[int, int, int, bool]  # filters, kernel, stride, whether it is transposed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1024, help="height and width of a frame, even")
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--layers", type=int, default=4, help="convolutions at half the resolution")
    parser.add_argument("--classes", type=int, default=3, help="planes of the output")
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--device")
    parser.add_argument("--save", help="a file to add the figures to")
    given = parser.parse_args()
    device = Device.open(given.device)
    inner: list[Layer] = [(given.channels, 3, 1, False)] * given.layers
    layers = [(given.channels, 3, 2, False), *inner, (given.classes, 2, 2, True)]
    network = convolutions(device, 3, given.size, layers)
    mask = convolutions(device, given.classes, given.size, [(1, 3, 2, False)])
    print(f"{device.adapter}, {device.library.name}; {given.frames} frames; ms: 50 %, 99 %, mean")
    found = [
        report(name, times, None) for name, times in parts(device, network, given.size, given.frames).items()
    ]
    for kind, loops in (
        ("one program", loops_of_one(network)),
        ("two programs", loops_of_two(network, mask)),
    ):
        first: tuple[float, list[float]] | None = None
        for name, loop in loops.items():
            times, seen = timed(loop(frames(given.size, WARM + given.frames)))
            first = first or (float(np.mean(times)), seen)
            if seen != first[1]:
                raise SystemExit(f"{kind}, {name}: other numbers than the first loop")
            found.append(report(f"{kind}, {name}", times, first[0]))
    if given.save:
        figures.add(given.save, str(device.adapter), found)


Loop = Callable[[Iterable[np.ndarray]], Iterable[tuple[Any, ...]]]


def loops_of_one(network: Method) -> dict[str, Loop]:
    out = [np.empty(spec.shape, np.float32) for spec in network.outputs]
    return {
        "calls": lambda frames: (network(frame) for frame in frames),
        "calls, out": lambda frames: (network(frame, out=out) for frame in frames),
        "map": network.map,
        "map, out": lambda frames: network.map(frames, out=out),
    }


def loops_of_two(network: Method, mask: Method) -> dict[str, Loop]:
    """Over the host, and without: the second program takes its input from the GPU."""
    return {
        "calls": lambda frames: (mask(*network(frame)) for frame in frames),
        "calls, on the GPU": lambda frames: (mask(*network(frame, on_gpu=True)) for frame in frames),
        "map, on the GPU": lambda frames: mask.map(network(frame, on_gpu=True) for frame in frames),
    }


def frames(size: int, count: int) -> Iterator[np.ndarray]:
    """Frames, each with a number of its own in one place."""
    draw = np.random.default_rng(0)
    arrays = [draw.random((1, 3, size, size), np.float32) for _ in range(ARRAYS)]
    for index in range(count):
        arrays[index % ARRAYS][0, 0, size // 2, size // 2] = index
        yield arrays[index % ARRAYS]


def timed(outputs: Iterable[tuple[Any, ...]]) -> tuple[list[float], list[float]]:
    """Milliseconds from one result to the next, and a number of each."""
    times, seen, begun = [], [], time.perf_counter()
    for (output,) in outputs:
        seen.append(float(output[0, 0, output.shape[2] // 2, output.shape[3] // 2]))
        ended = time.perf_counter()
        times.append(1e3 * (ended - begun))
        begun = ended
    return times[WARM:], seen


def parts(device: Device, network: Method, size: int, count: int) -> dict[str, list[float]]:
    """Milliseconds of the upload, the network and the reading of each frame."""
    times: dict[str, list[float]] = {"upload": [], "network": [], "read": []}
    uploaded = device.upload(np.zeros((1, 3, size, size), np.float32))
    for frame in frames(size, WARM + count):
        marks = [time.perf_counter()]
        device.write(uploaded.buffer, frame)
        submit(device, [])  # writes are part of the next submission
        device.wait()
        marks.append(time.perf_counter())
        (kept,) = network(uploaded, on_gpu=True)
        device.wait()
        marks.append(time.perf_counter())
        kept.numpy()
        marks.append(time.perf_counter())
        for name, taken in zip(times, np.diff(marks), strict=True):
            times[name].append(1e3 * float(taken))
    return {name: taken[WARM:] for name, taken in times.items()}


def report(name: str, times: list[float], first: float | None) -> Figure:
    """Print a row; the mean counts, because frames wait for each other."""
    mean = float(np.mean(times))
    ratio = f"  x {first / mean:.2f}" if first else ""
    print(
        f"{name:32} {percentile(times, 50):9.3f} {percentile(times, 99):9.3f} {mean:9.3f}{ratio}", flush=True
    )
    return Figure.of(name, times, "ms", tolerance=HOST_TOLERANCE)


def convolutions(device: Device, channels: int, size: int, layers: Iterable[Layer]) -> Method:
    """A method that runs convolutions one after the other, with random weights."""
    draw, nodes, values = np.random.default_rng(1), list[Node](), [tensor(0, (1, channels, size, size))]
    x = values[0]
    for filters, kernel, stride, is_transposed in layers:
        shape = (channels, filters, kernel, kernel) if is_transposed else (filters, channels, kernel, kernel)
        numbers = draw.normal(size=shape).astype(np.float32) / np.float32(kernel * channels**0.5)
        size = size * stride if is_transposed else size // stride
        weight = tensor(2 * len(nodes) + 1, shape, numbers)
        out = tensor(2 * len(nodes) + 2, (1, filters, size, size))
        padding = (0, 0) if is_transposed else (kernel // 2,) * 2
        window = ((stride,) * 2, padding, (1, 1), is_transposed, (0, 0), 1)
        clamp = (None, None) if is_transposed else (0.0, None)
        nodes.append(
            Node(len(nodes), "et_vk.conv_with_clamp.default", (x, weight, None, *window, *clamp, out))
        )
        x, channels = out, filters
    graph = Graph("convolutions", tuple(nodes), (values[0],), (x,))
    records = tuple(
        TensorRecord(DType.F32, each.shape_max, (0, 1, 2, 3), "static", None, False, False, None, False)
        for each in (values[0], x)
    )
    call = DelegateCall(0, (0, 1))
    record = MethodRecord("forward", records, (0,), (1,), (call,), (), ())
    return Method(LoadedMethod("convolutions", record, [prepare(graph)], [], device))


def tensor(id: int, shape: tuple[int, ...], numbers: np.ndarray | None = None) -> Tensor:
    if numbers is None:
        return Tensor(id, DType.F32, shape)
    return Tensor(
        id, DType.F32, shape, Constant(f"weight {id}", DType.F32, shape, memoryview(numbers.tobytes()))
    )


if __name__ == "__main__":
    main()
