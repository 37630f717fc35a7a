"""Load on a server: requests per second, time to the first token and between tokens, and leaks.

    python benchmarks/serve.py MODEL [--clients 1 8 32] [--requests N] [--prompt-tokens N] [--new-tokens N]
    python benchmarks/serve.py MODEL --requests 1000 --cancel 0.33      # and whether anything leaked
    python benchmarks/serve.py --url http://127.0.0.1:8000              # a server that runs already
    python benchmarks/serve.py MODEL --engine                           # without HTTP
    python benchmarks/serve.py MODEL --shared-tokens 512                # prompts that begin alike
    python benchmarks/serve.py MODEL --engine --regex '[a-z ]{4000}'    # answers that follow a grammar

    python benchmarks/serve.py MODEL --prompt-tokens 128 --spread 0           # prompts of one length

MODEL is a folder, a program or a name, as `pteron serve` takes it; the server is started in this process,
behind a socket. Each client sends the next request when it has its answer. Prompts differ, so that the prefix
cache does not help, and their lengths are drawn: log-normal, as those of chats are, around --prompt-tokens.
With --cancel, clients leave that part of the requests after some tokens. If the server runs in this process,
resources are counted before and after: sequences, queue, device memory, files, threads.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import figures
from figures import CHAT_SPREAD, Figure, drawn_lengths, percentile

from pteron.llm import LLM, Grammar, Sampling
from pteron.llm.names.models import BUNDLED
from pteron.serving import Busy, Engine, Request

# Token ids and how many are to follow -> one event for each that does.
Ask = Callable[[list[int], int], AsyncGenerator[None, None]]
SETTLE_SECONDS = 10.0  # for what was left to end
# What plans for lengths that come up late may take, some kilobytes each; a sampler that a third of a thousand
# requests left behind would take more.
KEPT = {"device bytes": 256 << 10}


@dataclass
class Samples:
    """What some clients saw, in seconds."""

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    tokens: int = 0
    cancelled: int = 0
    refused: int = 0
    errors: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a folder, a program or a name")
    parser.add_argument("--url", help="a server that runs already; its model is used")
    parser.add_argument("--engine", action="store_true", help="straight to the engine, without HTTP")
    parser.add_argument("--regex", help="that answers match, with --engine")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, help="for each number of clients (default: 8 of each client)")
    parser.add_argument("--cancel", type=float, default=0.0, help="part of the requests that are left early")
    parser.add_argument("--prompt-tokens", type=int, default=128, help="the median")
    parser.add_argument(
        "--spread", type=float, default=CHAT_SPREAD, help="of the logarithm of their number; 0: all alike"
    )
    parser.add_argument("--longest", type=int, help="tokens of the longest prompt (default: what fits)")
    parser.add_argument("--shared-tokens", type=int, default=0, help="before them, the same for all")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--sequences", type=int, help="answers side by side (default: as many as clients)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="a file to add the figures to")
    arguments = parser.parse_args()
    if (arguments.model is None) == (arguments.url is None):
        parser.error("name a model, or with --url a server")
    if arguments.url:
        arguments.longest = arguments.longest or 8 * arguments.prompt_tokens
        measured = asyncio.run(measure_all(by_http(arguments.url), 256, arguments))
        return report(measured, arguments, "a server")
    path = BUNDLED.get(arguments.model, arguments.model)
    most = arguments.sequences or max(arguments.clients)
    with LLM(path, sequences=most) as llm:
        device = str(llm.model.device.adapter)
        print(f"{llm.program.file.name} on {device}")
        room = (llm.model.context or 2048) - arguments.shared_tokens - arguments.new_tokens
        arguments.longest = min(arguments.longest or room, room)
        waiting = max(64, 2 * max(arguments.clients))
        with Engine(llm, running=most, waiting=waiting) as engine, reached(engine, arguments) as ask:
            vocabulary = min(llm.model.vocabulary, llm.tokenizer.vocab_size)
            asyncio.run(warm_up(ask, vocabulary, arguments))
            before = living(engine)
            measured = asyncio.run(measure_all(ask, vocabulary, arguments))
            return report(measured, arguments, device) | leaked(engine, before)


# What is asked.


@contextmanager
def reached(engine: Engine, arguments: argparse.Namespace) -> Iterator[Ask]:
    """How to reach an engine: directly, or through a server in its own thread."""
    if arguments.engine:
        yield by_engine(engine, arguments.regex)
        return
    import uvicorn

    from pteron.serving.http import create_app

    app = create_app(engine, name="model", page=False)
    config = uvicorn.Config(app, port=0, http="h11", access_log=False, log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield by_http(f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        thread.join()


def by_engine(engine: Engine, regex: str | None) -> Ask:
    grammar = Grammar.regex(engine.llm.tokenizer, regex) if regex else None

    async def ask(prompt: list[int], count: int) -> AsyncGenerator[None, None]:
        request = Request(tuple(prompt), count, Sampling(), stop_ids=frozenset(), grammar=grammar)
        answer = engine.submit(request)
        try:
            async for _ in answer:
                yield
        finally:
            answer.cancel()

    return ask


def by_http(url: str) -> Ask:
    """A client that does little work, so that the server is measured."""
    host, _, port = url.removeprefix("http://").strip("/").partition(":")
    name: list[str] = []

    async def ask(prompt: list[int], count: int) -> AsyncGenerator[None, None]:
        if not name:
            name.append(await served_name(host, int(port or 80)))
        body = {"model": name[0], "prompt": prompt, "max_tokens": count, "stream": True, "temperature": 0}
        async with aclosing(streamed(host, int(port or 80), "/v1/completions", body)) as lines:
            async for line in lines:
                if line.startswith(b'data: {"error"'):
                    raise RuntimeError(line.decode())
                if line.startswith(b"data: {") and b'"finish_reason":null' in line:
                    yield

    return ask


async def served_name(host: str, port: int) -> str:
    content = b"".join([line async for line in streamed(host, port, "/v1/models", None)])
    name: str = json.loads(content)["data"][0]["id"]
    return name


async def streamed(host: str, port: int, path: str, body: object) -> AsyncGenerator[bytes, None]:
    """The lines of a response, as they come."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    try:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        if status == 429:
            raise Busy("the server is busy", 1.0)
        if status != 200:
            raise RuntimeError(f"status {status}: {(await reader.read()).decode()}")
        while line := await reader.readline():
            yield line
    finally:
        writer.close()


# What is measured.


async def measure_all(
    ask: Ask, vocabulary: int, arguments: argparse.Namespace
) -> list[tuple[int, float, Samples]]:
    return [
        (clients, *await measure(ask, vocabulary, arguments, clients, arguments.requests or 8 * clients))
        for clients in arguments.clients
    ]


async def warm_up(ask: Ask, vocabulary: int, arguments: argparse.Namespace) -> None:
    """Compile, make as many sequences as there will be, and a plan for every number of them: answers whose
    lengths differ end one after the other."""
    most = max(arguments.clients)
    await measure(ask, vocabulary, arguments, most, 2 * most + 1)
    lengths = [2 * number for number in range(1, most + 1)]
    length = arguments.shared_tokens + min(arguments.prompt_tokens, arguments.longest)
    prompts = [[3 + number] * length for number in range(most)]
    for _ in range(2):
        answers = map(once, [ask] * most, prompts, lengths, [None] * most, [Samples()] * most)
        await asyncio.gather(*answers)


async def measure(
    ask: Ask, vocabulary: int, arguments: argparse.Namespace, clients: int, requests: int
) -> tuple[float, Samples]:
    """Run requests with some clients: the total seconds, and what the clients saw."""
    samples, numbers = Samples(), iter(range(requests))
    draws = random.Random(f"{arguments.seed}, {clients}, {requests}")  # others than those asked before

    def tokens(count: int) -> list[int]:
        return [draws.randrange(3, min(vocabulary, 256)) for _ in range(count)]

    shared = tokens(arguments.shared_tokens)
    drawn = arguments.prompt_tokens, arguments.longest, draws.random(), arguments.spread
    prompts = [shared + tokens(length) for length in drawn_lengths(requests, *drawn)]
    leaving = [draws.random() < arguments.cancel for _ in range(requests)]

    async def client() -> None:
        for number in numbers:
            leave_at = draws.randrange(arguments.new_tokens) if leaving[number] else None
            await once(ask, prompts[number], arguments.new_tokens, leave_at, samples)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - started, samples


async def once(ask: Ask, prompt: list[int], count: int, leave_at: int | None, samples: Samples) -> None:
    """One request, until its end or until its client leaves."""
    started = before = time.perf_counter()
    tokens = 0
    try:
        async with aclosing(ask(prompt, count)) as pieces:
            async for _ in pieces:
                now = time.perf_counter()
                (samples.between if tokens else samples.first).append(now - before)
                before = now
                tokens += 1
                if leave_at is not None and tokens > leave_at:
                    samples.cancelled += 1
                    break
            else:
                samples.whole.append(time.perf_counter() - started)
    except Busy as error:
        samples.refused += 1
        await asyncio.sleep(error.seconds)
    except Exception as error:
        samples.errors.append(repr(error))
    samples.tokens += tokens


def report(measured: list[tuple[int, float, Samples]], arguments: argparse.Namespace, device: str) -> int:
    print(
        f"prompts of {arguments.shared_tokens} and {arguments.prompt_tokens} tokens in the median, at most "
        f"{arguments.longest}, answers of {arguments.new_tokens}, "
        f"{'engine' if arguments.engine else 'HTTP'}\n"
        f"{'clients':>7} {'requests/s':>10} {'tokens/s':>9}   {'first token ms p50/p95/p99':>28}   "
        f"{'between tokens ms p50/p95/p99':>30}   {'left':>4} {'429':>4} {'errors':>6}"
    )
    found = []
    for clients, seconds, samples in measured:
        done = len(samples.whole) + samples.cancelled
        first, between = (percentiles(times) for times in (samples.first, samples.between))
        print(
            f"{clients:7} {done / seconds:10.2f} {samples.tokens / seconds:9.1f}   {shown(first):>28}   "
            f"{shown(between):>30}   {samples.cancelled:4} {samples.refused:4} {len(samples.errors):6}",
            flush=True,
        )
        name = f"serve, {clients} clients"
        found += [
            Figure.of(f"{name}: tokens", [samples.tokens / seconds], "tokens/s", None, True),
            Figure.of(f"{name}: first token", samples.first, "s"),
            Figure.of(f"{name}: first token, 99 %", [percentile(samples.first, 99)], "s"),
            Figure.of(f"{name}: between tokens, 99 %", [percentile(samples.between, 99)], "s"),
        ]
    if arguments.save:
        figures.add(arguments.save, device, found)
    errors = [error for *_, samples in measured for error in samples.errors]
    for error in sorted(set(errors))[:5]:
        print(f"error ({errors.count(error)} times): {error}")
    return 1 if errors else 0


def percentiles(times: list[float]) -> list[float]:
    """The 50th, 95th and 99th, in milliseconds."""
    return [1e3 * percentile(times, place) for place in (50, 95, 99)]


def shown(values: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)


# What is left behind.


def living(engine: Engine) -> dict[str, int]:
    """Everything that could leak, counted."""
    gc.collect()
    load = engine.load
    descriptors = Path("/proc/self/fd")
    own = [thread for thread in threading.enumerate() if not thread.name.startswith("AnyIO")]
    return {
        "running": load.running,
        "waiting": load.waiting,
        "sequences": load.sequences,
        "cache bytes": load.cache_bytes,
        "device bytes": engine.llm.model.device.buffer_bytes,
        "files": len(list(descriptors.iterdir())) if descriptors.exists() else 0,
        "threads": len(own),  # less those that web servers keep for whatever would block them
    }


def leaked(engine: Engine, before: dict[str, int]) -> int:
    """Print what has grown since before, after a pause; return whether anything has."""
    until = time.monotonic() + SETTLE_SECONDS
    most = {name: count + KEPT.get(name, 0) for name, count in before.items()}
    while any((after := living(engine))[name] > most[name] for name in before):
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    grown = [name for name in before if after[name] > most[name]]
    print("before -> after: " + ", ".join(f"{name} {before[name]:,} -> {after[name]:,}" for name in before))
    print(f"cancelled in all: {engine.load.cancelled}, failed: {engine.load.failed}")
    print(f"leaked: {', '.join(grown) or 'nothing'}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
