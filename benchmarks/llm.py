"""Speed of a language model: prefill and decode, on this machine's GPU.

    python benchmarks/llm.py PROGRAM.pte [OTHER.pte ...] [--prefill 128 512] [--decode 64 512]
                             [--tokens 200] [--unseen 100] [--torch] [--save FILE]
    python benchmarks/llm.py MODEL --text [--decode 100 430] [--tokens 200] [--rounds 5] [--save FILE]

Prints load time and GPU bytes, prefill and decode tokens per second at several lengths, what the floor (of
floors.py, where the GPU's rates are known) would allow and how much of that is reached, GPU and host time per
step, dispatches per step; with --save the figures go to a file; with --torch how far the logits are from a
float64 PyTorch reference, and how fast PyTorch is on the same graph; with --profile a step by kernel. Times
are taken after a second of continuous load: an idle GPU runs at a fraction of its clock. With --unseen, that
many prompts of different lengths are read, then the same again: what a length costs the first time. Other
programs are measured after the first, then the first again, and their times are compared with it. With
--text, MODEL (a program, a folder or a name) generates through `LLM.generate`: time to the first token and
tokens per second after it, greedy, drawn (temperature 0.8, top_p 0.9) and constrained by a grammar. This part
uses the public API only, so it also measures other versions of Pteron: PYTHONPATH=OTHER/src, in turns with
this one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

import figures
import numpy as np
from breakdown import by_kernel
from figures import HOST_TOLERANCE, Figure, percentile
from floors import prefill_seconds, rates_of, step_seconds

import pteron
from pteron.errors import PteronError
from pteron.gpu import PassTimer
from pteron.llm import LLM, Grammar
from pteron.llm.cache.options import CacheOptions
from pteron.llm.engine.generate import LoopCounters, generate_step
from pteron.llm.model import STEPS_MAX, LanguageModel
from pteron.llm.sampling import Sampler, Sampling
from pteron.ops.target import PRODUCTS

FILLER = 5  # a token


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="+", metavar="program")
    parser.add_argument("--prefill", type=int, nargs="*", default=[1, 16, 128, 512])
    parser.add_argument(
        "--decode", type=int, nargs="*", default=[16, 512], help="context lengths to decode from"
    )
    parser.add_argument(
        "--depths",
        type=int,
        nargs="*",
        default=[0],
        help="positions at which prompts are read: zeros are before",
    )
    parser.add_argument("--products", choices=PRODUCTS, help="precision of products by matrices")
    parser.add_argument("--cache", choices=("f32", "f16", "int8"), help="type of the KV cache")
    parser.add_argument("--tokens", type=int, default=200, help="tokens per decode measurement")
    parser.add_argument("--unseen", type=int, default=0, help="lengths to read for the first time, and again")
    parser.add_argument("--below", type=int, default=500, help="what they are less than")
    parser.add_argument("--warm", type=float, default=1.5, help="seconds of load before timing")
    parser.add_argument("--profile", type=int, nargs="*", default=[], help="steps to break down by kernel")
    parser.add_argument("--digits", type=int, help="of activations in 4-bit products: 3, or 2 for speed")
    parser.add_argument("--torch", action="store_true", help="check and time PyTorch on the same graph")
    parser.add_argument("--text", action="store_true", help="measure LLM.generate instead")
    parser.add_argument("--rounds", type=int, default=5, help="of --text; the median counts")
    parser.add_argument("--save", help="a file to add the figures to")
    arguments = parser.parse_args()
    first, *others = arguments.programs
    if others and (arguments.save or arguments.text):
        parser.error("--save and --text take one program")
    if arguments.text:
        adapter, measured = measure_text(first, arguments.decode, arguments.tokens, arguments.rounds)
    else:
        adapter, measured = measure(first, arguments)
    if arguments.save:
        figures.add(arguments.save, adapter, measured)
    if others:
        compare(first, measured, others, arguments)


def compare(first: str, measured: list[Figure], others: list[str], arguments: argparse.Namespace) -> None:
    """Measure other programs, and the first again: how far the machine alone changes its times."""
    rates, lines = {figure.name: figure.value for figure in measured}, []
    for path in (*others, first):
        _, found = measure(path, arguments)
        lines += [
            f"{path}: {figure.name}: {rates[figure.name] / figure.value:.2f} times the time of {first}"
            for figure in found
            if figure.name in rates
        ]
    print(*lines, sep="\n")


def measure(path: str, arguments: argparse.Namespace) -> tuple[str, list[Figure]]:
    """The adapter, and figures of a program's prefill and decode."""
    started = time.perf_counter()
    options: dict[str, Any] = {"digits": arguments.digits, "products": arguments.products}
    if arguments.cache:
        options["adapt"] = CacheOptions(cache=arguments.cache).adapt
    with pteron.load(path, **{name: given for name, given in options.items() if given}) as program:
        read = time.perf_counter()
        model = LanguageModel(program)
        loaded = time.perf_counter()
        print(f"{program.file.name} on {model.device.adapter}")
        sizes = ", ".join(f"{kind} {size / 1e6:,.1f} MB" for kind, size in model.method.gpu_bytes.items())
        print(f"open {read - started:.2f} s, upload and compile {loaded - read:.2f} s; GPU memory: {sizes}")

        stream = np.random.default_rng(0).integers(3, model.vocabulary, model.context or 64).tolist()
        prefill = [n for n in arguments.prefill if n <= min(model.steps_max, model.context or n)]
        decode = [n for n in arguments.decode if n + 8 < (model.context or 0)]
        warm_up(model, stream, arguments.warm)
        measured = [
            measure_prefill(model, stream, length, depth) for depth in arguments.depths for length in prefill
        ]
        measured += [measure_decode(model, stream, length, arguments.tokens) for length in decode]
        if arguments.unseen:
            measured += measure_unseen(model, stream, arguments.unseen, arguments.below)
        for length in arguments.profile:
            profile(model, length)
        if arguments.torch:
            compare_with_torch(model, stream, prefill, decode)
        return str(model.device.adapter), measured


def measure_text(path: str, contexts: list[int], tokens: int, rounds: int) -> tuple[str, list[Figure]]:
    """The adapter, and figures of `LLM.generate`: how long the first token takes, and how fast the others
    come."""
    found = []
    with LLM(path) as llm:
        device, model = llm.model.device, llm.model
        print(f"{llm.program.file.name} on {device.adapter}, through LLM.generate")
        ids = np.random.default_rng(0).integers(3, model.vocabulary, model.context or 64).tolist()
        kinds: dict[str, dict[str, Any]] = {
            "greedy": {},
            "drawn": {"temperature": 0.8, "top_p": 0.9, "seed": 1},
        }
        try:
            endless = Grammar.regex(llm.tokenizer, "[A-Za-z ,.]{4000}")
            kinds["constrained"] = {"grammar": endless}
        except PteronError as error:  # an extra is missing
            print(f"no grammars: {error}")
        for context in (length for length in contexts if length + 8 < (model.context or 0)):
            options: dict[str, Any] = {"max_new_tokens": tokens, "stop_ids": ()}
            for kind, own in kinds.items():
                firsts, rates = [], []
                for _ in range(rounds + 1):  # the first compiles and warms
                    llm.reset()
                    started = time.perf_counter()
                    pieces = llm.generate(ids[:context], **options, **own)
                    next(pieces)
                    first = time.perf_counter()
                    count = sum(1 for _ in pieces)
                    firsts.append(1e3 * (first - started))
                    rates.append(count / (time.perf_counter() - first))
                name = f"{kind} from {context}"
                found.append(Figure.of(f"text {name}, first token", firsts[1:], "ms"))
                found.append(Figure.of(f"text {name}", rates[1:], "tokens/s", None, True))
                print(
                    f"{name:24}: first token {statistics.median(firsts[1:]):8.2f} ms, then "
                    f"{statistics.median(rates[1:]):9,.1f} tokens/s ({count + 1} tokens)",
                    flush=True,
                )
        return str(device.adapter), found


def settle(model: LanguageModel) -> None:
    """Wait for everything submitted."""
    model.device.wait()


def warm_up(model: LanguageModel, stream: list[int], seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        model.reset()
        for chunk in model.chunks(stream[:64]) * 4:
            model.position = 0
            model.submit(chunk)
        settle(model)


def timer_of(model: LanguageModel, passes: int) -> PassTimer | None:
    offered = "timestamp-query" in model.device.adapter.features
    return PassTimer(model.device, passes) if offered else None


def go_to(model: LanguageModel, depth: int) -> None:
    """Continue at a position without reading what is before: the caches hold what they hold."""
    model.tokens[:] = [FILLER] * depth
    model.position = depth


def measure_prefill(model: LanguageModel, stream: list[int], length: int, depth: int = 0) -> Figure:
    ids = stream[:length]
    dispatches = model.method.counters.dispatches
    go_to(model, depth)
    model.submit(ids)
    dispatches = model.method.counters.dispatches - dispatches
    warm_up(model, stream, 0.2)
    times = []
    for _ in range(10):
        go_to(model, depth)
        started = time.perf_counter()
        model.submit(ids)
        settle(model)
        times.append(time.perf_counter() - started)
    repeats = max(2, min(200, int(0.5 / min(times))))
    model.timer = timer_of(model, repeats)
    started = time.perf_counter()
    for _ in range(repeats):
        go_to(model, depth)
        model.submit(ids)
    settle(model)
    streamed = (time.perf_counter() - started) / repeats
    gpu = statistics.median(model.timer.seconds()) if model.timer else float("nan")
    model.timer = None
    floor = None if depth else prefill_floor(model, length)
    where = f" at depth {depth:,}" if depth else ""
    rate = Figure.of(
        f"prefill {length} tokens{where}", [length / seconds for seconds in times], "tokens/s", floor, True
    )
    print(
        f"prefill {length:5} tokens{where}: {length / min(times):9,.0f} tokens/s "
        f"({min(times) * 1e3:7.2f} ms, waiting), {length / streamed:9,.0f} back to back{reached(rate)}; "
        f"GPU {gpu * 1e3:7.2f} ms, {dispatches} dispatches",
        flush=True,
    )
    return rate


def start_decoding(model: LanguageModel, stream: list[int], length: int) -> list[int]:
    """A prompt that decoding begins with: of long contexts only the last token."""
    model.reset()
    if length <= model.steps_max:
        return stream[:length]
    go_to(model, length - 1)
    return [FILLER]


def measure_decode(model: LanguageModel, stream: list[int], length: int, tokens: int) -> Figure:
    tokens = min(tokens, (model.context or 0) - length)
    sampler = model.sampler(Sampling())
    samples = []
    for _ in range(4):  # the first time compiles and warms
        begin = start_decoding(model, stream, length)
        counters = LoopCounters()
        before = model.method.counters
        steps = generate_step(model, sampler, begin, tokens, counters=counters)
        next(steps)
        started = time.perf_counter()
        drawn = sum(1 for _ in steps)
        samples.append((time.perf_counter() - started) / drawn)
        after = model.method.counters
    seconds = statistics.median(samples[1:])
    begin = start_decoding(model, stream, length)
    before_decode = len(model.chunks(begin)) + 1  # passes that read the prompt and draw after it
    model.timer = timer_of(model, before_decode + tokens)
    drawn = sum(1 for _ in generate_step(model, sampler, begin, tokens))
    gpu = sum(model.timer.seconds()[before_decode:]) / (drawn - 1) if model.timer else float("nan")
    model.timer = None
    host = host_time(model, sampler)
    dispatches = (after.dispatches - before.dispatches) / tokens
    floor = decode_floor(model, length + tokens // 2)
    rate = Figure.of(f"decode from {length}", [1 / sample for sample in samples[1:]], "tokens/s", floor, True)
    print(
        f"decode from {length:5}: {1 / seconds:9,.0f} tokens/s ({seconds * 1e3:.3f} ms a token)"
        f"{reached(rate)}: GPU {gpu * 1e3:.3f} ms, host {host * 1e3:.3f} ms, {dispatches:.0f} dispatches, "
        f"{after.plans - before.plans} plans, {counters.stalls} stalls, {counters.throttles} throttled reads",
        flush=True,
    )
    sampler.close()
    return rate


def measure_unseen(model: LanguageModel, stream: list[int], count: int, below: int) -> list[Figure]:
    """Milliseconds from a prompt to its logits for different lengths in drawn order, twice."""
    below = min(below, model.steps_max, model.context or below)
    lengths = random.Random(0).sample(range(1, below), min(count, below - 1))

    def seconds(length: int) -> float:
        model.reset()
        started = time.perf_counter()
        model.prefill(stream[:length])
        return 1e3 * (time.perf_counter() - started)

    started = time.perf_counter()
    model.warm()
    print(f"plans ahead: {1e3 * (time.perf_counter() - started):.0f} ms, {model.method.counters.plans} plans")
    plans, warmed = model.method.counters.plans, time.perf_counter() + 1
    while time.perf_counter() < warmed:  # planning leaves the GPU idle, and its clock low
        seconds(below)
    passes = {"first time": [seconds(length) for length in lengths]}
    plans = model.method.counters.plans - plans
    passes["again"] = [seconds(length) for length in lengths]
    figures = []
    for name, times in passes.items():
        print(
            f"{len(lengths)} lengths below {below}, {name}: 50 % {percentile(times, 50):.2f} ms, "
            f"90 % {percentile(times, 90):.2f}, 99 % {percentile(times, 99):.2f}"
            + (f"; {plans} plans" if name == "first time" else ""),
            flush=True,
        )
        named = f"{len(lengths)} lengths, {name}"
        figures.append(Figure.of(named, times, "ms", tolerance=HOST_TOLERANCE))
        figures.append(Figure.of(f"{named}, 99 %", [percentile(times, 99)], "ms", tolerance=HOST_TOLERANCE))
    return figures


def prefill_floor(model: LanguageModel, length: int) -> float | None:
    """Tokens per second that arithmetic allows for a prompt, or for a short one, bytes and dispatches."""
    rates = rates_of(model.device.name)
    if rates is None or model.delegate is None:
        return None
    plan, _ = model.delegate.recorded((np.full((1, length), 5, np.int64), np.array([0], np.int64)))
    graph = model.program.graphs("forward")[0]
    return length / max(prefill_seconds(rates, graph, length), step_seconds(rates, plan, graph, length, 0))


def decode_floor(model: LanguageModel, position: int) -> float | None:
    """Tokens per second that the bytes and dispatches of one step allow at this context."""
    rates = rates_of(model.device.name)
    if rates is None or model.delegate is None:
        return None
    plan, _ = model.delegate.recorded((np.full((1, 1), 5, np.int64), np.array([position], np.int64)))
    states = model.method.gpu_bytes["states"] * position / (model.context or position)
    return 1 / step_seconds(rates, plan, model.program.graphs("forward")[0], 1, states)


def reached(rate: Figure) -> str:
    """How much of the floor was reached, as text."""
    return f", {rate.fraction:.0%} of the floor's {rate.floor:,.0f}" if rate.fraction else ""


def profile(model: LanguageModel, steps: int) -> None:
    """GPU time of a call by kernel and grid."""
    assert model.delegate is not None
    position = (model.context or 0) // 4
    inputs = (np.full((1, steps), 5, np.int64), np.array([position], np.int64))
    plan, replay = model.delegate.recorded(inputs)
    by_kernel(model.device, plan, replay, f"profile of {steps} tokens at position {position}")


def host_time(model: LanguageModel, sampler: Sampler) -> float:
    """Seconds the host needs to prepare and submit one step, where it submits several at once."""
    model.position = 1
    sampler.draw(np.zeros(model.vocabulary, model.logits_dtype.numpy), 0)
    step, times = 1, []
    for _ in range(6):
        settle(model)
        started = time.perf_counter()
        with model.device.lock:
            _, count = model.submit_steps(
                sampler.drawn_at(step - 1),
                STEPS_MAX,
                lambda logits, token, growing, step=step: sampler.replay(logits, step, token, growing),
                (),
            )
            step += count
            sampler.set_step(step)
        times.append((time.perf_counter() - started) / count)
    settle(model)
    return statistics.median(times)


def compare_with_torch(
    model: LanguageModel, stream: list[int], prefill: list[int], decode: list[int]
) -> None:
    import torch
    from torch_reference import TorchReference

    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = model.program.graphs("forward")[0]
    exact = TorchReference(graph, torch.float64, device)
    for length in sorted({1, 7, *prefill[-2:]}):
        ids = stream[:length]
        model.reset()
        logits = model.prefill(ids)
        want = exact(torch.tensor([ids], device=device), 0).reshape(-1)[-model.vocabulary :].cpu().numpy()
        step = model.decode_one_token(stream[length])
        want_step = exact(torch.tensor([[stream[length]]], device=device), length).reshape(-1).cpu().numpy()
        error = max(np.abs(logits - want).max(), np.abs(step - want_step).max())
        print(
            f"logits of {length} tokens and of one more: at most {error:.2e} from float64 "
            f"(logits up to {np.abs(want).max():.1f}); same choice: {logits.argmax() == want.argmax()}"
        )
    del exact
    half = TorchReference(graph, torch.float16 if device == "cuda" else torch.float32, device)
    for length, start in [*((n, 0) for n in prefill), *((1, n) for n in decode)]:
        ids = torch.tensor([stream[:length]], device=device)
        times = []
        for _ in range(6):
            started = time.perf_counter()
            half(ids, start)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
        what = f"prefill {length}" if start == 0 else f"decode from {start}"
        print(f"PyTorch eager, {half.dtype}, {device}: {what}: {length / min(times):,.0f} tokens/s")


if __name__ == "__main__":
    main()
