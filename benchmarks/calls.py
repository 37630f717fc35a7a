"""What a call costs besides its arithmetic: chains of small additions, 10 to 1,000 of them in one graph.

    python benchmarks/calls.py [--adds 10 100 1000] [--elements 1024] [--seconds 0.5] [--device NAME]
                               [--save FILE]
    python benchmarks/calls.py --sizes PROGRAM.pte [--count 63] [--multiple 4]

A blocking call brings its inputs and waits for its output; calls that follow one another leave both on the
GPU, and only the last is waited for. The floor is the GPU time of the dispatches, at the cost of one in the
longest chain, by timestamps. Each encoder (`pteron info` names it) has a column. With --sizes, a program of
dynamic shapes is called at drawn ones, then at the same again: what a shape costs the first time it comes up.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable

import figures
import numpy as np
from figures import HOST_TOLERANCE, Figure, percentile

import pteron
from pteron.dtypes import DType
from pteron.format.records import DelegateCall, MethodRecord, TensorRecord
from pteron.gpu import Device, PassTimer
from pteron.gpu.encode import NATIVE_VARIABLE, encoder
from pteron.gpu.wgpu_native import LIBRARY
from pteron.graph import Graph, Node, Tensor
from pteron.passes import prepare
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.method import Method
from pteron.runtime.specs import ValueSpec


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--adds", type=int, nargs="*", default=[10, 30, 100, 300, 1000])
    parser.add_argument("--elements", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure")
    parser.add_argument("--device")
    parser.add_argument("--save", help="a file to add the figures to")
    parser.add_argument("--sizes", metavar="PROGRAM", help="a program to call at drawn shapes instead")
    parser.add_argument("--count", type=int, default=63, help="of shapes")
    parser.add_argument("--multiple", type=int, default=4, help="of what dynamic dims are")
    arguments = parser.parse_args()
    if arguments.sizes:
        adapter, found = sizes(arguments.sizes, arguments.count, arguments.multiple, arguments.device)
        if arguments.save:
            figures.add(arguments.save, adapter, found)
        return
    device = Device.open(arguments.device)
    methods = {count: chain(device, count, arguments.elements) for count in sorted(arguments.adds)}
    each = dispatch_seconds(device, methods[max(methods)], arguments.elements)
    ways = encodings()
    print(f"{device.adapter}, {arguments.elements:,} elements; {each * 1e6:.2f} µs of the GPU a dispatch")
    print(f"columns: {' | '.join(ways)}; milliseconds a call (fraction of them that is the floor)")
    print(f"{'adds':>5} {'floor':>8}  {'blocking':^{17 * len(ways)}}  following one another")
    measured: list[Figure] = []
    for count, method in methods.items():
        size, seconds = arguments.elements, arguments.seconds
        times = {f"blocking, {way}": blocking(method, count, size, seconds, ways[way]) for way in ways}
        times |= {f"following, {way}": following(method, size, seconds, ways[way]) for way in ways}
        row = [
            Figure.of(
                f"{count} adds: {name}",
                [1e3 * taken for taken in samples],
                "ms",
                1e3 * count * each,
                tolerance=HOST_TOLERANCE,
            )
            for name, samples in times.items()
        ]
        cells = "".join(f"{figure.value:9.3f} ({figure.fraction or 0:4.0%})" for figure in row)
        print(f"{count:5} {count * each * 1e3:8.3f}  {cells}", flush=True)
        measured += row
    if arguments.save:
        figures.add(arguments.save, str(device.adapter), measured)


def sizes(path: str, count: int, multiple: int, device: str | None) -> tuple[str, list[Figure]]:
    """The adapter, and milliseconds of calls at drawn shapes, the first time and again."""
    draws = random.Random(0)
    with pteron.load(path, device=device) as program:
        method = program["forward"]

        def drawn() -> list[np.ndarray]:
            """Inputs; dims of one place and one range have one size."""
            sizes: dict[tuple[int, int, int], int] = {}

            def size(dim: int, least: int, most: int) -> int:
                return multiple * draws.randint(max(1, -(-least // multiple)), most // multiple)

            def shape(spec: ValueSpec) -> list[int]:
                dims = enumerate(zip(spec.shape_min or (1,) * len(spec.shape), spec.shape, strict=True))
                each = [(dim, least, most) for dim, (least, most) in dims]
                return [
                    sizes.setdefault(place, size(*place)) if free else place[2]
                    for place, free in zip(each, spec.dynamic, strict=True)
                ]

            return [np.ones(shape(spec), spec.dtype.numpy if spec.dtype else None) for spec in method.inputs]

        method(*drawn())
        calls = [drawn() for _ in range(count)]
        before = method.counters.plans
        passes: dict[str, list[float]] = {}
        for name in ("first time", "again"):
            passes[name] = []
            for inputs in calls:
                started = time.perf_counter()
                method(*inputs)
                passes[name].append(1e3 * (time.perf_counter() - started))
            print(
                f"{count} shapes, {name}: 50 % {percentile(passes[name], 50):.2f} ms, "
                f"90 % {percentile(passes[name], 90):.2f}, 99 % {percentile(passes[name], 99):.2f}; "
                f"{method.counters.plans - before} plans so far",
                flush=True,
            )
        return str(program.device.adapter), [
            Figure.of(f"{count} shapes, {name}", times, "ms", tolerance=HOST_TOLERANCE)
            for name, times in passes.items()
        ]


def chain(device: Device, count: int, elements: int) -> Method:
    """A method that adds y to x `count` times."""
    x, y = (Tensor(id, DType.F32, (elements,), None, None) for id in range(2))
    nodes, last = [], x
    for index in range(count):
        memory = 2 if index == count - 1 else index % 2  # in turns, as an exporter plans them
        total = Tensor(2 + index, DType.F32, (elements,), None, memory)
        nodes.append(Node(index, "aten.add.Tensor", (last, y, 1, total)))
        last = total
    graph = Graph("chain", tuple(nodes), (x, y), (last,))
    tensor = TensorRecord(DType.F32, (elements,), (0,), "static", None, False, False, None, False)
    call = DelegateCall(0, (0, 1, 2))
    record = MethodRecord("forward", (tensor,) * 3, (0, 1), (2,), (call,), (), (), (0,))
    return Method(LoadedMethod(f"chain of {count}", record, [prepare(graph)], [], device))


def encodings() -> dict[str, str]:
    """Values of PTERON_NATIVE by the encoder that each gives here."""
    values = dict.fromkeys([os.environ.get(NATIVE_VARIABLE, ""), "0"])
    return {use(value).partition(" ")[0]: value for value in values}


def use(value: str) -> str:
    """Select the encoder by PTERON_NATIVE; return its name."""
    os.environ[NATIVE_VARIABLE] = value
    encoder.cache_clear()
    return encoder(LIBRARY).description


def dispatch_seconds(device: Device, method: Method, elements: int) -> float:
    """GPU time of one of a chain's dispatches: the median of many runs."""
    delegate = method.sole_delegate
    assert delegate is not None
    inputs = [np.ones(elements, np.float32)] * 2
    timer = PassTimer(device, 20)
    for _ in range(20):
        delegate.submit(inputs, timer=timer)
    plan, _ = delegate.recorded(inputs)
    return float(np.median(timer.seconds())) / len(plan.launches)


def blocking(method: Method, count: int, elements: int, seconds: float, native: str) -> list[float]:
    """Seconds of a call that brings inputs and waits for the output."""
    use(native)
    x, y = np.zeros(elements, np.float32), np.full(elements, 1.0, np.float32)
    (result,) = method(x, y)
    assert (result == count).all()
    return samples(lambda: method(x, y), seconds)


def following(method: Method, elements: int, seconds: float, native: str) -> list[float]:
    """Seconds per call of many in a row; only the last is waited for."""
    use(native)
    delegate = method.sole_delegate
    assert delegate is not None
    inputs = [np.zeros(elements, np.float32)] * 2

    def several() -> None:
        for _ in range(8):
            delegate.submit(inputs)
        delegate.device.wait()

    return [taken / 8 for taken in samples(several, seconds)]


def samples(call: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of as many calls as fit, after as long again of warming up: clocks drop in pauses."""
    times: list[float] = []
    started = time.perf_counter()
    while time.perf_counter() < started + 2 * seconds or len(times) < 3:
        begun = time.perf_counter()
        call()
        ended = time.perf_counter()
        if ended > started + seconds:
            times.append(ended - begun)
    return times


if __name__ == "__main__":
    main()
