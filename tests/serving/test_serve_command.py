"""pteron serve: a process that prints its address, serves, and ends after a signal."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_fixtures import PATIENCE

from pteron.cli import main
from pteron.serving.http import Limits

LONG = {
    "model": "stories15m",
    "prompt": "Once upon a time",
    "max_tokens": 200,
    "temperature": 1.0,
    "stream": True,
}


@dataclass
class Served:
    process: subprocess.Popen[str]
    address: str
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]

    def ended(self) -> int:
        return self.process.wait(PATIENCE)


@contextmanager
def served(tmp_path: Path, *options: str) -> Iterator[Served]:
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "pteron", "serve", "stories15m", "--port", "0", *options]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"stories15m is served at (http://127\.0\.0\.1:\d+)\n", line)
        assert match, (line, log.read_text("utf-8"))
        yield Served(process, match[1], log)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_it_serves_and_ends(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert httpx.get(f"{server.address}/health").json()["status"] == "ok"
        assert "<html" in httpx.get(server.address).text
        found = httpx.post(
            f"{server.address}/v1/completions",
            json={"model": "stories15m", "prompt": "Once upon a time", "max_tokens": 5},
            timeout=PATIENCE,
        )
        assert found.json()["usage"]["completion_tokens"] == 5
        refused = httpx.get(f"{server.address}/v1/models", headers={"Host": "evil.example"})
        assert refused.status_code == 403
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        routes = [line["route"] for line in server.lines() if line["event"] == "request"]
        assert "/v1/completions" in routes
        assert {line["event"] for line in server.lines()} <= {"request", "server"}


@pytest.mark.long(every=2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_streams_that_are_open_finish(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, "--grace", "60") as server:
        url = f"{server.address}/v1/completions"
        with httpx.stream("POST", url, json=LONG, timeout=PATIENCE) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(number)
            rest = [line for line in lines if line]
            assert rest[-1] == "data: [DONE]"
            assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] in (
                "length",
                "stop",
            )
        assert server.ended() == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.address)


def test_streams_longer_than_the_grace_period_get_an_error(tmp_path: Path) -> None:
    with served(tmp_path, "--grace", "0") as server:
        url = f"{server.address}/v1/completions"
        with httpx.stream("POST", url, json=LONG, timeout=PATIENCE) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
            assert rest[-1] == "data: [DONE]"
            assert "shutting_down" in rest[-2]
        assert server.ended() == 0


@pytest.mark.parametrize(
    ("signals", "pause"),
    [([signal.SIGINT] * 2, 0.5), ([signal.SIGTERM] * 2, 0.0), ([signal.SIGINT, signal.SIGTERM] * 2, 0.0)],
    ids=["one after the other", "at once", "four at once"],
)
def test_a_second_signal_does_not_wait(tmp_path: Path, signals: list[signal.Signals], pause: float) -> None:
    """Streams get an error, and the log has no traceback."""
    with served(tmp_path, "--grace", "600") as server:
        url = f"{server.address}/v1/completions"
        with httpx.stream("POST", url, json=LONG | {"n": 8}, timeout=PATIENCE) as response:
            lines = response.iter_lines()
            next(lines)
            for number in signals:
                server.process.send_signal(number)
                time.sleep(pause)
            rest = [line for line in lines if line]
            assert rest[-1] == "data: [DONE]"
            assert "shutting_down" in rest[-2] or "finish_reason" in rest[-2]  # it may have been quicker
        assert server.ended() == 0
        assert "Traceback" not in server.log.read_text("utf-8")
        assert not [line for line in server.lines() if line.get("level") == "error"]


LOSING = """
import sys, threading
from pteron.cli import main
from pteron.serving.http import server

def lose(service):
    sys.stdin.readline()
    service.llm.program.device.wait()
    service.llm.program.device.lost("testing")

start = server.Server.startup

async def startup(self, sockets=None):
    await start(self, sockets)
    threading.Thread(target=lose, args=(self._service,), daemon=True).start()

server.Server.startup = startup
sys.exit(main(["serve", "stories15m", "--port", "0", "--grace", "600"]))
"""


def test_a_server_that_lost_its_device_ends(tmp_path: Path) -> None:
    """A supervisor restarts it; open streams get an error."""
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", LOSING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            with httpx.stream("POST", f"{address}/v1/completions", json=LONG, timeout=PATIENCE) as response:
                lines = response.iter_lines()
                next(lines)
                process.stdin.write("\n")
                process.stdin.flush()
                rest = [line for line in lines if line]
                assert rest[-1] == "data: [DONE]"
                assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == "device_lost"
            assert process.wait(PATIENCE) == 1
        finally:
            process.kill()
    said = log.read_text("utf-8")
    (told,) = [line for line in said.splitlines() if "has lost its device" in line and line.startswith("{")]
    assert json.loads(told)["level"] == "error"
    assert said.splitlines()[-1].startswith("pteron: the server has ended: its model has lost its device")


def test_a_key_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_API_KEYS", "from-environment")
    with served(tmp_path, "--name", "stories15m", "--quiet") as server:
        assert httpx.get(f"{server.address}/v1/models").status_code == 401
        headers = {"Authorization": "Bearer from-environment"}
        assert httpx.get(f"{server.address}/v1/models", headers=headers).status_code == 200
        assert httpx.get(server.address).status_code == 200  # the page is public: it prompts for the key
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        assert server.log.read_text("utf-8") == ""


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "stories15m", "--port", str(port)]) == 1
    assert f"cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "no model is called 'nowhere': known are smollm2, stories15m"),
        (["stories15m", "--host", "no.such.host.example"], "not an address to listen at"),
        (["stories15m", "--api-key", "two words"], "printable ASCII"),
        (["stories15m", "--api-key-file", "nowhere"], "there is no such file"),
    ],
)
def test_what_cannot_be_served(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *options]) == 1
    assert said in capsys.readouterr().err


def test_help_names_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--help"])
    told = capsys.readouterr().out
    for option in ("--host", "--api-key", "--queue", "--max-new-tokens", "--grace", "PTERON_API_KEYS"):
        assert option in told
    for number in (Limits().new_tokens, Limits().body_bytes):
        assert f"(default: {number})" in " ".join(told.split())
