"""pteron serve: a process that prints its address, serves, and ends after a signal."""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from http_fixtures import NAME, PATIENCE, Running, until
from prometheus_client.parser import text_string_to_metric_families
from scripted import Script, ScriptedEngine

from pteron.cli import build_parser, main
from pteron.errors import PteronError
from pteron.llm import LLM
from pteron.llm.arguments import SEQUENCES_MAX, WAITING_MAX
from pteron.llm.names.models import BUNDLED
from pteron.serving.http import Limits, create_app, listening
from pteron.serving.http.server import Server, configure

LONG: dict[str, Any] = {"model": "stories15m", "prompt": "Once upon a time", "max_tokens": 200}
LONG |= {"temperature": 1.0, "stream": True, "logit_bias": {"1": -100, "2": -100}}  # the story does not end


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


@contextmanager
def streaming(
    address: str, headers: Mapping[str, str] | None = None, **change: Any
) -> Iterator[Iterator[str]]:
    """The lines of a stream after the first, which has come."""
    url = f"{address}/v1/completions"
    with httpx.stream("POST", url, json=LONG | change, headers=headers, timeout=PATIENCE) as response:
        lines = (line for line in response.iter_lines() if line)
        assert next(lines).startswith("data: ")
        yield lines


def last_event(lines: Iterator[str]) -> dict[str, Any]:
    """The last event of a stream, at its end."""
    *_, last, end = lines
    assert end == "data: [DONE]"
    found: dict[str, Any] = json.loads(last.removeprefix("data: "))
    return found


@pytest.mark.long(every=2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_and_finishes_open_streams(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, "--drain-seconds", "60") as server:
        assert httpx.get(f"{server.address}/health").json()["status"] == "ok"
        assert "<html" in httpx.get(server.address).text
        rejected = httpx.get(f"{server.address}/v1/models", headers={"Host": "evil.example"})
        assert rejected.status_code == 403
        with streaming(server.address, max_tokens=120) as lines:
            server.process.send_signal(number)
            until(lambda: httpx.get(f"{server.address}/ready").json()["status"] == "draining")
            assert httpx.get(f"{server.address}/health").status_code == 200
            refused = httpx.post(f"{server.address}/v1/completions", json=LONG)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert last_event(lines)["choices"][0]["finish_reason"] == "length"
        assert server.ended() == 0
        assert f"draining after {number.name}; running requests: 1" in messages(server)
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.address)
        routes = [line["route"] for line in server.lines() if line["event"] == "request"]
        assert "/v1/completions" in routes
        assert {line["event"] for line in server.lines()} <= {"request", "server", "device"}


@pytest.mark.long
def test_a_key_and_no_grace_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that are longer than the grace period get an error."""
    monkeypatch.setenv("PTERON_API_KEYS", "from-environment")
    with served(tmp_path, "--name", "stories15m", "--quiet", "--grace", "0") as server:
        assert httpx.get(f"{server.address}/v1/models").status_code == 401
        headers = {"Authorization": "Bearer from-environment"}
        assert httpx.get(f"{server.address}/v1/models", headers=headers).status_code == 200
        assert httpx.get(server.address).status_code == 200  # the page is public: it prompts for the key
        with streaming(server.address, headers) as lines:
            server.process.send_signal(signal.SIGTERM)
            assert last_event(lines)["error"]["code"] == "shutting_down"
        assert server.ended() == 0
        assert server.log.read_text("utf-8") == ""


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    ("signals", "pause"),
    [([signal.SIGINT] * 2, 0.5), ([signal.SIGTERM] * 2, 0.0), ([signal.SIGINT, signal.SIGTERM] * 2, 0.0)],
    ids=["one after the other", "at once", "four at once"],
)
def test_a_second_signal_does_not_wait(tmp_path: Path, signals: list[signal.Signals], pause: float) -> None:
    """Streams get an error, and the log has no traceback."""
    with served(tmp_path, "--grace", "600") as server:
        with streaming(server.address, n=8) as lines:
            for number in signals:
                server.process.send_signal(number)
                time.sleep(pause)
            last = last_event(lines)
            assert "choices" in last or last["error"]["code"] == "shutting_down"  # it may have finished
        assert server.ended() == 0
        assert "Traceback" not in server.log.read_text("utf-8")
        assert not [line for line in server.lines() if line.get("level") == "error"]


LOSING = """
import sys, threading
from pteron.cli import main
from pteron.serving.http import server

def lose(model):
    sys.stdin.readline()
    model.llm.program.device.wait()
    model.llm.program.device.mark_lost("testing")

start = server.Server.startup

async def startup(self, sockets=None):
    await start(self, sockets)
    threading.Thread(target=lose, args=(self._state.models.loaded[0],), daemon=True).start()

server.Server.startup = startup
sys.exit(main(["serve", "stories15m", "--port", "0", "--grace", "600"]))
"""


@pytest.mark.long
def test_a_server_that_lost_its_device_ends(tmp_path: Path) -> None:
    """A supervisor restarts it; open streams get an error."""
    log = tmp_path / "log"
    with log.open("w") as stderr:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": stderr}
        process = subprocess.Popen([sys.executable, "-c", LOSING], **pipes, text=True)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            with streaming(address) as lines:
                process.stdin.write("\n")
                process.stdin.flush()
                assert last_event(lines)["error"]["code"] == "device_lost"
            assert process.wait(PATIENCE) == 1
        finally:
            process.kill()
    logged = log.read_text("utf-8").splitlines()
    (line,) = [line for line in logged if "has lost its device" in line and line.startswith("{")]
    assert json.loads(line)["level"] == "error"
    assert logged[-1].startswith("pteron: the server has ended: its model has lost its device")


def test_a_lost_model_does_not_wait_for_its_answers(stories: LLM) -> None:
    """They cannot come, so the grace period is not waited for."""
    engine = ScriptedEngine(stories, lambda _: Script(["Once"], hangs=True))
    app, addresses = create_app(engine, name="stories15m"), Queue[str]()
    with listening(port=0) as place:
        server = Server(configure(app), app.state.server, addresses.put, grace=600)
        thread = threading.Thread(target=server.run, args=([place],), daemon=True)
        thread.start()
        with streaming(addresses.get(timeout=PATIENCE)) as lines:
            engine.is_alive = False
            assert "error" in last_event(lines)
        thread.join(PATIENCE)
    assert (thread.is_alive(), server.is_lost) == (False, True)


@pytest.mark.parametrize(
    ("given", "reached"),
    [
        ([], {"page": True, "open_page": True, "open_metrics": False, "api_keys": (), "origins": ()}),
        (["--closed-page", "--open-metrics", "--api-key", "k"], {"open_page": False, "open_metrics": True}),
        (["--no-page", "--cors", "https://x.example"], {"page": False, "origins": ("https://x.example",)}),
        (["--allow-host", "h.example"], {"hosts": ("127.0.0.1", "localhost", "[::1]", "h.example")}),
        (["--max-body-bytes", "99", "--keep-alive", "5"], {"limits": Limits(body_bytes=99), "keep_alive": 5}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_reach_the_application(
    given: list[str], reached: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}

    def create(_: object, **options: Any) -> None:
        found.update(options)
        raise PteronError("far enough")

    monkeypatch.setattr("pteron.serving.http.create_app", create)
    several = ["stories15m", "other=stories15m"]  # which are loaded at their first request
    assert main(["serve", *several, "--port", "0", "--quiet", *given]) == 1
    assert {name: found[name] for name in reached} == reached


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `pteron serve` would open and run, without a model; its log is a file of the test's folder."""
    found: dict[str, Any] = {}

    def open_served(*given: Any, **options: Any) -> None:
        found.update(options, given=given)

    def in_engine(model: object, **options: Any) -> Any:
        found.update(options)
        return nullcontext(model)

    def create(model: Any, **options: Any) -> str:
        found.update(options, model=model)
        return "the application"

    def run(app: object, place: socket.socket, **options: Any) -> None:
        found.update(options, app=app)

    monkeypatch.setattr("pteron.tools.estimate.estimates.check_fits", lambda *_: None)
    monkeypatch.setattr("pteron.embeddings.hidden_states.open_served", open_served)
    monkeypatch.setattr("pteron.embeddings.hidden_states.in_engine", in_engine)
    monkeypatch.setattr("pteron.serving.http.create_app", create)
    monkeypatch.setattr("pteron.serving.http.run", run)
    return found


@pytest.mark.parametrize(
    ("given", "reached"),
    [
        (["stories15m"], {"name": "stories15m", "adapters": {}, "sequences": None, "cache_bytes": None}),
        (["stories15m"], {"waiting": WAITING_MAX, "grace": 30.0, "certificate": None, "rings": True}),
        (["mine=stories15m"], {"name": "mine"}),
        (["mine=stories15m", "--name", "x", "--alias", "y"], {"name": "x", "aliases": ("y",)}),
        (["stories15m", "--grace", "0", "--queue", "3"], {"grace": 0, "waiting": 3}),
        (
            ["stories15m", "--sequences", "2", "--cache-bytes", "9", "--lora", "a=p", "--tokenizer", "t"],
            {"sequences": 2, "cache_bytes": 9, "adapters": {"a": "p"}},
        ),
        (
            ["stories15m", "--context", "99", "--cache", "f16", "--no-rings", "--speculate", "lookup"],
            {"context": 99, "cache": "f16", "rings": False, "speculate": "lookup"},
        ),
        (["stories15m", "--host", "0.0.0.0"], {"hosts": ()}),
        (["stories15m", "--host", "0.0.0.0", "--allow-host", "h"], {"hosts": ("h",)}),
        (["stories15m", "--host", "127.0.0.2"], {"hosts": ("127.0.0.1", "localhost", "[::1]")}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_reach_the_model(
    given: list[str], reached: dict[str, Any], opened: dict[str, Any], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    assert main(["serve", *given, "--port", "0", "--log", str(log)]) == 0
    assert {name: opened[name] for name in reached} == reached
    assert opened["app"] == "the application"
    before, *lines = log.read_text("utf-8").splitlines()  # of an earlier run
    assert before == "before"
    is_open = "0.0.0.0" in given
    assert [json.loads(line)["event"] for line in lines] == ["access"] * is_open


def test_several_models_have_their_own_adapters(opened: dict[str, Any]) -> None:
    """A model without one does not get those of others."""
    given = ["serve", "stories15m", "b=stories15m", "--lora", "b:sql=p", "--port", "0", "--quiet"]
    assert main(given) == 0
    for source, adapters in zip(opened["model"], ({}, {"sql": "p"}), strict=True):
        with source.open():
            assert opened["adapters"] == adapters
        assert source.adapters == tuple(adapters)


def test_options_reach_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Paths are whole there: each machine of a cluster has its own current folder."""
    served: list[Any] = []
    launch = SimpleNamespace(run=lambda options, **named: served.append((options, named)))
    monkeypatch.setitem(sys.modules, "pteron.serving.cluster.launch", launch)
    monkeypatch.setattr("pteron.extras.check_installed", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    for name in ("sql", "draft", "b"):
        (tmp_path / name).symlink_to(BUNDLED["stories15m"])
    given = [*("--replicas", "1-4", "--replica-gpus", "1", "--replica-cpus", "2.5", "--proxies", "3")]
    given += [*("--sequences", "5", "--cache-bytes", "9", "--queue", "6", "--log-prompts", "--quiet")]
    given += [*("--ray-address", "h:1", "--port", "7", "--digits", "2", "--no-rings", "--data", "w.ptd")]
    given += ["--lora", "a=sql", "--speculate", "draft", "--tokenizer", "t", "--closed-page"]
    assert main(["serve", "stories15m", "--ray", *given]) == 0
    expected = {"replicas": (1, 4), "gpus": 1, "cpus": 2.5, "proxies": 3, "sequences": 5, "cache_bytes": 9}
    expected |= {"queue": 6, "logs_prompts": True, "is_quiet": True, "digits": 2, "rings": False}
    expected |= {"data": ("w.ptd",), "adapters": {"a": str(BUNDLED["stories15m"])}, "open_page": False}
    expected |= {"speculate": str(BUNDLED["stories15m"]), "tokenizer": "t", "model": "stories15m"}
    ((options, named),) = served
    assert {name: getattr(options, name) for name in expected} == expected
    assert (named["address"], named["host"], named["port"]) == ("h:1", "127.0.0.1", 7)
    for many, found in (("3", 3), ("2-2", (2, 2))):
        assert main(["serve", "stories15m", "c=b", "--ray", "--replicas", many, "--host", "0.0.0.0"]) == 0
        options, _ = served.pop()
        assert (options.replicas, options.more_models) == (found, {"c": str(BUNDLED["stories15m"])})
        assert "everyone who can reach 0.0.0.0 can use the model" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "page"), [([], True), (["--no-page"], False), (["--closed-page"], False)])
def test_the_banner_names_the_page_if_a_browser_can_open_it(
    given: list[str], page: bool, opened: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "stories15m", "--port", "0", "--quiet", *given]) == 0
    opened["ready"]("http://127.0.0.1:8000")
    assert ("in a browser" in capsys.readouterr().out) is page


def test_many_connections_at_once(tmp_path: Path) -> None:
    """More than the process may open files: the oldest without a request give way. Without any file left,
    connections wait, and the log says so once. The terminal is closed at the end."""
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("the limit of another process cannot be set here")
    with served(tmp_path, "--max-connections", "40") as server, ExitStack() as held:
        files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (files + 200, hard))
        port = int(server.address.rpartition(":")[2])
        for _ in range(500):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            connection.sendall(b"GET /health HT")
        assert httpx.get(f"{server.address}/health", timeout=PATIENCE).status_code == 200
        assert not failures(server)
        held.close()
        until(lambda: len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < files + 40)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (files, hard))
        for _ in range(50):
            held.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
        until(lambda: bool(failures(server)))
        time.sleep(1.5)  # asyncio has tried again
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (files + 200, hard))
        assert httpx.get(f"{server.address}/health", timeout=PATIENCE).status_code == 200
        (message,) = failures(server)
        assert message.startswith("new connections wait: too many open files")
        server.process.send_signal(signal.SIGHUP)
        assert server.ended() == 0
        assert "draining after SIGHUP; running requests: 0" in messages(server)


def messages(server: Served) -> list[str]:
    return [line["message"] for line in server.lines() if line["event"] == "server"]


def failures(server: Served) -> list[str]:
    return [line["message"] for line in server.lines() if line.get("level") == "error"]


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "stories15m", "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert f"cannot listen at 127.0.0.1:{port}" in said
    assert "--port" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "no model is called 'nowhere': known are smollm2, stories15m"),
        (["stories15m", "--host", "no.such.host.example"], "not an address to listen at"),
        (["stories15m", "--host", "192.0.2.1", "--port", "0"], ": cannot assign requested address\n"),
        (["stories15m", "--certificate", "nowhere.pem"], "nowhere.pem: there is no such file"),
        (["stories15m", "--certificate", __file__], f"{__file__} is no certificate with its private key"),
        (["stories15m", "--private-key", __file__], "a private key needs its certificate"),
        (["stories15m", "--api-key", "two words"], "printable ASCII"),
        (["stories15m", "--api-key-file", "nowhere"], "there is no such file"),
    ],
)
def test_invalid_arguments(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *options]) == 1
    assert message in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--help"])
    printed = capsys.readouterr().out
    for option in ("--host", "--api-key", "--queue", "--max-new-tokens", "--grace", "PTERON_API_KEYS"):
        assert option in printed
    for number in (Limits().new_tokens, Limits().body_bytes):
        assert f"(default: {number})" in " ".join(printed.split())


# docs/serve.md names existing options, limits and metrics, with their values ---------------------


PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text("utf-8")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def options() -> dict[str, argparse.Action]:
    commands = build_parser(["serve"])._get_positional_actions()[0].choices
    assert isinstance(commands, dict)
    return {flag: action for action in commands["serve"]._actions for flag in action.option_strings}


def test_options_exist() -> None:
    named = set(re.findall(r"(--[a-z][a-z-]+)", re.sub(r"`benchmarks/serve.py.*", "", PAGE, flags=re.DOTALL)))
    assert len(named) > 15
    assert named <= options().keys()


def test_limits_have_these_values() -> None:
    rows = re.findall(r"^\| `(--[a-z-]+)` \| ([\d.]+)(?: (\w+))? \|", PAGE, re.MULTILINE)
    assert len(rows) == 10
    limits, known = Limits(), options()
    for option, number, unit in rows:
        value = float(number) * UNITS.get(unit, 1)
        name = option.removeprefix("--max-").replace("-", "_")
        if option.startswith("--max-"):
            assert getattr(limits, name) == value, option
        else:
            assert value == (SEQUENCES_MAX if option == "--sequences" else known[option].default), option
    prose = (
        f"{limits.stops} stop strings of {limits.stop_characters} characters, {limits.schema_bytes >> 10} KiB"
    )
    assert prose in PAGE
    assert f"{limits.inputs} texts" in PAGE
    assert f"{limits.body_seconds:g} seconds to arrive" in PAGE


def test_metrics_are_all_named(scripted: Running) -> None:
    scripted.http.post("/v1/completions", json={"model": NAME, "prompt": "Hi"})
    families = list(text_string_to_metric_families(scripted.http.get("/metrics").text))
    there = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if not family.name.endswith("_created")
    }
    assert set(re.findall(r"`(pteron_\w+)", PAGE)) == there
