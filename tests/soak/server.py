"""Mixed load on a server: `scripts/soak --server MINUTES [--seed N]`.

Clients ask, read streams fast and slowly, leave or break off in the middle, send bodies that are wrong, too
large or cut off, open connections and send nothing, and fill the context. Every whole answer is compared with
the first one. Once in a while all clients pause: then nothing may run or wait, and memory, files and threads
of the server are measured. At the end the server is told to stop.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from soak.memory import Growth, Sample, growths

CLIENTS = 6
SECONDS_BETWEEN, SAMPLES_MIN = 30.0, 6  # between samples; samples of a short run
REST_SECONDS = 60.0  # within which a server without clients has nothing left to do
BYTES_PER_REQUEST = 512.0  # of resident memory, that the allocator's own unrest may come to
MODEL = "stories15m"
CONTEXT_WORDS = 400  # more than the context of the model holds
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOAD = re.compile(r"^pteron_requests_(?:running|waiting)(?:\{.*\})? (\S+)$", re.MULTILINE)


class WrongReplyError(Exception):
    """The server replied with something else than expected."""


class Load:
    """A server, and the clients of it."""

    def __init__(self, seed: int) -> None:
        command = [sys.executable, "-m", "pteron", "serve", MODEL, "--port", "0", "--log", "none"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
        assert self.process.stdout is not None
        found = None
        while found is None and (line := self.process.stdout.readline()):
            found = re.search(r"http://([\w.]+):(\d+)", line)
        assert found is not None, "the server did not start"
        self.address = found[1], int(found[2])
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._may_run = threading.Event()
        self._is_over = threading.Event()
        self._busy = 0
        self._questions = _questions(random.Random(seed))
        self._answers = {name: self._text(*question) for name, question in self._questions.items()}
        self._threads = [
            threading.Thread(target=self._client, args=(random.Random(f"{seed} {index}"),), daemon=True)
            for index in range(CLIENTS)
        ]

    def run(self, seconds: float) -> list[Sample]:
        """Let the clients work; the samples of the server between."""
        samples, end = [], time.monotonic() + seconds
        for thread in self._threads:
            thread.start()
        while time.monotonic() < end and not self.problems:
            self._may_run.set()
            time.sleep(min(SECONDS_BETWEEN, seconds / SAMPLES_MIN))
            self._may_run.clear()
            samples.append(self._at_rest())
        self._is_over.set()
        self._may_run.set()
        for thread in self._threads:
            thread.join(REST_SECONDS)
        return samples

    def stop(self) -> int:
        """Tell the server to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(REST_SECONDS)
        finally:
            self.process.kill()

    def _at_rest(self) -> Sample:
        """Wait until nothing runs, then measure."""
        end = time.monotonic() + REST_SECONDS
        while self._busy or any(float(count) for count in _LOAD.findall(self._get("/metrics"))):
            if time.monotonic() > end:
                self.problems.append(
                    f"after {REST_SECONDS:g} s without clients, something still runs or waits"
                )
                break
            time.sleep(0.1)
        for name in self._questions:
            self._ask(name)
        folder = Path("/proc") / str(self.process.pid)
        resident = int((folder / "statm").read_text("ascii").split()[1]) * _PAGE
        files, threads = (len(os.listdir(folder / part)) for part in ("fd", "task"))
        return Sample(sum(self.done.values()), resident, 0, 0, files, threads)

    def _client(self, chance: random.Random) -> None:
        kinds: Mapping[str, Callable[[random.Random], None]] = {
            "ask": lambda chance: self._ask(chance.choice([*self._questions])),
            "stream": lambda chance: self._stream(chance, pause=0.0),
            "slow": lambda chance: self._stream(chance, pause=0.2),
            "leave": lambda chance: self._leave(chance, is_abrupt=False),
            "break off": lambda chance: self._leave(chance, is_abrupt=True),
            "bad": self._bad,
            "silent": self._silent,
            "full": self._full,
        }
        while not self._is_over.is_set():
            self._may_run.wait()
            with self._lock:
                self._busy += 1
            name = chance.choice([*kinds])
            try:
                kinds[name](chance)
                self.done[name] += 1
            except (WrongReplyError, OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.problems.append(f"{name}: {type(error).__name__}: {error}")
            finally:
                with self._lock:
                    self._busy -= 1

    # What clients do ----------------------------------------------------------------------------------

    def _ask(self, name: str) -> None:
        found = self._text(*self._questions[name])
        if found != self._answers[name]:
            raise WrongReplyError(f"{name} was answered by {found!r}, at first by {self._answers[name]!r}")

    def _stream(self, chance: random.Random, pause: float) -> None:
        name = chance.choice([*self._questions])
        route, body = self._questions[name]
        text = ""
        with self._open(route, {**body, "stream": True}) as reply:
            for line in reply:
                if line.startswith(b"data: {"):
                    choice = json.loads(line[6:])["choices"][0]
                    text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
                    time.sleep(pause * chance.random())
        if text != self._answers[name]:
            raise WrongReplyError(f"{name} was streamed as {text!r}, at first {self._answers[name]!r}")

    def _leave(self, chance: random.Random, *, is_abrupt: bool) -> None:
        """Read some of a stream. `is_abrupt` resets the connection, as a killed client's machine does."""
        route, body = self._questions[chance.choice([*self._questions])]
        connection = self._send(route, json.dumps({**body, "stream": True, "max_tokens": 200}).encode())
        if chance.random() < 0.7:
            connection.getresponse().read(chance.randrange(1, 600))
        if is_abrupt:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def _bad(self, chance: random.Random) -> None:
        """A body that is no request: the reply is a 400, 413 or 422, never a fault of the server."""
        good = {"model": MODEL, "prompt": "Once", "max_tokens": 4}
        body = chance.choice(
            [
                b"",
                b"{",
                bytes(chance.randrange(256) for _ in range(100)),
                json.dumps([good]).encode(),
                json.dumps({**good, "temperature": "hot"}).encode(),
                json.dumps({**good, "max_tokens": -1}).encode(),
                json.dumps({**good, "prompt": {"text": "Once"}}).encode(),
                json.dumps({**good, "model": "another"}).encode(),
                json.dumps({**good, "prompt": "x" * 5_000_000}).encode(),
            ]
        )
        status, _ = self._post(COMPLETIONS, body)
        if status not in (400, 404, 413, 422):
            raise WrongReplyError(f"{body[:80]!r} was answered with {status}")

    def _silent(self, chance: random.Random) -> None:
        """A connection that sends a part of a request, and no more."""
        with socket.create_connection(self.address, timeout=REST_SECONDS) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n"[
                    : chance.randrange(60)
                ]
            )
            time.sleep(chance.random())

    def _full(self, chance: random.Random) -> None:
        """A prompt that does not fit the context."""
        words = " once" * (CONTEXT_WORDS + chance.randrange(100))
        status, reply = self._post(COMPLETIONS, json.dumps({"model": MODEL, "prompt": words}).encode())
        if status != 400 or reply["error"]["code"] != "context_length_exceeded":
            raise WrongReplyError(f"a full context was answered with {status}: {reply}")

    # Requests -----------------------------------------------------------------------------------------

    def _text(self, route: str, body: Mapping[str, Any]) -> str:
        status, reply = self._post(route, json.dumps(body).encode())
        if status != 200:
            raise WrongReplyError(f"{route} was answered with {status}: {reply}")
        choice = reply["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])

    def _post(self, route: str, body: bytes) -> tuple[int, Any]:
        connection = self._send(route, body)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, json.loads(content)

    def _open(self, route: str, body: Mapping[str, Any]) -> http.client.HTTPResponse:
        reply = self._send(route, json.dumps(body).encode()).getresponse()
        if reply.status != 200:
            raise WrongReplyError(f"{route} was answered with {reply.status}: {reply.read()[:200]!r}")
        return reply

    def _send(self, route: str, body: bytes) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self.address, timeout=2 * REST_SECONDS)
        connection.request("POST", route, body, {"Content-Type": "application/json"})
        return connection

    def _get(self, route: str) -> str:
        connection = http.client.HTTPConnection(*self.address, timeout=REST_SECONDS)
        connection.request("GET", route)
        text = connection.getresponse().read().decode()
        connection.close()
        return text


def _questions(chance: random.Random) -> dict[str, tuple[str, dict[str, Any]]]:
    """Routes and bodies, with names; their answers do not change."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for start in ("Once upon a time", "Tom and Tim", "The little dog", "One day, a girl"):
        for settings in ({"temperature": 0}, {"temperature": 0.9, "seed": chance.randrange(1000)}):
            body = {"model": MODEL, "prompt": start, "max_tokens": chance.randrange(4, 40), **settings}
            found[f"{start}, {settings}"] = COMPLETIONS, body
    return found


def load(minutes: float, seed: int) -> int:
    """Run the load, and print what happened; 1 if anything was wrong or grew."""
    made = Load(seed)
    try:
        samples = made.run(60 * minutes)
    finally:
        code = made.stop()
    found: list[Growth] = growths(samples, BYTES_PER_REQUEST) if len(samples) >= SAMPLES_MIN else []
    print(", ".join(f"{count:,} {name}" for name, count in made.done.most_common()))
    for sample in samples[:: max(1, len(samples) // 12)]:
        resident = f"{sample.resident / 2**20:8.1f} MiB"
        print(f"after {sample.rounds:7,}: {resident}, {sample.files} files, {sample.threads} threads")
    print(*(growth for growth in found if growth.name in ("resident", "files", "threads")), sep="\n")
    print(*made.problems[:20], f"the server ended with code {code}", sep="\n")
    return int(bool(made.problems) or code != 0 or not all(growth.is_flat for growth in found))
