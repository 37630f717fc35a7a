"""What `pteron serve` prints for a person: its address with a request to try, then a line per request."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from http_fixtures import CHAT, NAME, Running, running
from scripted import Script, ScriptedEngine

from pteron.cli import serve
from pteron.cli.serve_banner import Banner, Kind, key_source, masked
from pteron.llm import LLM
from pteron.serving.http import Logs
from pteron.serving.http.log_text import text_line
from pteron.serving.http.request_log import log_records

KEY = "0123456789abcdef"


def run_shell(command: str, **environment: str) -> dict[str, Any]:
    """The JSON that a command line prints."""
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("curl or bash is not installed")
    path = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, env=path | environment, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def tried(lines: list[str]) -> str:
    (line,) = [line for line in lines if line.startswith("  try  ")]
    return line.removeprefix("  try  ")


@pytest.mark.parametrize("kind", ["chat", "models"])
@pytest.mark.parametrize("source", ["none", "new", "file", "variable"])
def test_the_request_works(stories: LLM, tmp_path: Path, source: str, kind: Kind) -> None:
    file = tmp_path / "the keys"
    file.write_text(f"# ours\n{KEY}\nanother-key-of-ours\n")
    keys = () if source == "none" else (KEY, "another-key-of-ours")
    banner = Banner(
        [NAME],
        keys,
        KEY if source == "new" else None,
        key_source((), str(file) if source == "file" else None, "PTERON_API_KEYS"),
    )
    engine = ScriptedEngine(stories, lambda _: Script(["Hi"]))
    with running(engine, api_keys=keys) as server:
        lines = banner.lines(server.address, kind)
        assert lines[0] == f"{NAME} is served at {server.address}"
        found = run_shell(tried(lines), PTERON_API_KEYS=f"{KEY},other")
    if kind == "chat":
        assert found["choices"][0]["message"]["content"] == "Hi"
    else:
        assert [model["id"] for model in found["data"]] == [NAME]
    assert (KEY in "\n".join(lines)) == (source == "new")  # only a key that was made here is shown
    assert [line for line in lines if line.startswith("  key  ")] == {
        "none": [],
        "new": [f"  key  {KEY}, ano…"],
    }.get(source, ["  key  012…, ano…"])


def test_addresses_and_names() -> None:
    two = Banner(["it's", "other"]).lines("http://0.0.0.0:8000", "models")
    assert two == [
        "it's, other are served at http://0.0.0.0:8000",
        "  chat http://127.0.0.1:8000 in a browser",
        "  try  curl http://127.0.0.1:8000/v1/models",
    ]
    assert "curl -k https://[::1]:80/v1/" in tried(Banner(["x"]).lines("https://[::]:80", "embeddings"))
    given = Banner(["x"], ["k"], None, key_source(["k"], "file", "NAME")).lines("http://h:1", "models")
    assert tried(given).endswith('-H "Authorization: Bearer KEY"')
    for closed in (
        Banner(["x"], page=False).lines("http://h:1", "chat"),
        Banner(["x"]).lines("http://h:1", "audio"),
    ):
        assert not any(line.startswith("  chat ") for line in closed)
    heard = tried(Banner(["it's"]).lines("http://h:1", "audio"))
    assert heard == """curl http://h:1/v1/audio/transcriptions -F file=@speech.mp3 -F 'model=it'"'"'s'"""
    assert (masked("short"), masked("k" * 11), masked("0123456789ab")) == ("…", "…", "012…")


# A line per request ------------------------------------------------------------------------------


def text_logs(log: io.StringIO) -> Logs:
    return Logs(log, line=text_line)


def logged(server: Running, log: io.StringIO, count: int) -> list[str]:
    from http_fixtures import until

    until(lambda: log.getvalue().count("\n") >= count)
    return log.getvalue().splitlines()


def test_lines_of_requests(scripted: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(scripted.app.state.server, "logs", text_logs(log))
    scripted.http.post("/v1/chat/completions", json=CHAT)
    for quiet in ("/health", "/page/main.js"):  # are not logged
        assert scripted.http.get(quiet).status_code == 200
    scripted.http.get("/no/such%1b[31mpage")
    scripted.http.post("/v1/completions", json={"model": "other", "prompt": "x"})
    first, second, third = logged(scripted, log, 3)
    assert re.fullmatch(
        rf"\d\d:\d\d:\d\d POST /v1/chat/completions {NAME} 200 8 \+ 1 tokens \d+\.\d\d s", first
    )
    assert re.fullmatch(r"[\d:]+ GET /no/such\\x1b\[31mpage 404 \d+\.\d\d s not_found", second)
    assert third.endswith(" model_not_found")


def test_records_of_a_library() -> None:
    """Within the context only, and afterwards the logger is as before."""
    log, logger = io.StringIO(), logging.getLogger("pteron-test.library")
    logger.setLevel(logging.ERROR)
    with log_records("pteron-test", Logs(log)):
        logger.error("late")
        logging.getLogger("pteron-test").info("soon")
        assert not logging.getLogger("pteron-test").propagate
        for error in (ValueError("wrong"), asyncio.CancelledError()):  # the latter at a shutdown
            logger.error("ended", exc_info=error)
    logger.error("nobody hears this")
    found = [json.loads(line) for line in log.getvalue().splitlines()]
    expected = [("error", "late"), ("info", "soon"), ("error", "ended"), ("error", "ended")]
    assert [(each["level"], each["message"]) for each in found] == expected
    assert ["ValueError: wrong" in each.get("trace", "") for each in found] == [False, False, True, False]
    assert "trace" not in found[3]
    outer = logging.getLogger("pteron-test")
    assert (outer.propagate, outer.level, outer.handlers) == (True, logging.NOTSET, [])


def test_a_server_goes_on_without_its_log() -> None:
    closed, full = io.StringIO(), Mock(side_effect=OSError("No space left on device"))
    closed.close()
    for stream in (closed, Mock(write=full), Mock(flush=full)):
        Logs(stream).write("server", message="nobody reads this")
    assert full.call_count == 2


def test_a_request_cannot_write_a_line(scripted: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(scripted.app.state.server, "logs", text_logs(log))
    scripted.http.get("/x%0A12:00:00 POST /v1/chat/completions 200")
    (line,) = logged(scripted, log, 1)
    assert r"GET /x\x0a12:00:00 POST /v1/chat/completions 200 404" in line


def test_a_client_that_left_and_a_long_path() -> None:
    fields: dict[str, Any] = {"event": "request", "time": "2026-01-01T00:00:00Z", "method": "GET"}
    fields |= {"route": "other", "path": "/" + "x" * 200}
    fields |= {"status": 499, "seconds": 1.234, "abandoned": True, "error": "e"}
    line = text_line(fields)
    assert line is not None
    assert line.split(" ", 1)[1] == f"GET /{'x' * 79} 499 1.23 s the client left"


def test_other_lines() -> None:
    log = io.StringIO()
    logs = text_logs(log)
    logs.write("server", level="info", message="Started server process [1]")
    logs.write("server", level="warning", message="late")
    logs.write("engine", model="m", message="up to 4 sequences step as one batch")
    logs.write("device", message="no GPU was found")
    logs.write("failure", id="1", route="/x", error="ValueError()", trace="Traceback\n  line\n")
    lines = [line.partition(" ")[2] for line in log.getvalue().splitlines()]
    assert lines[:4] == [
        *("warning late", "m up to 4 sequences step as one batch", "no GPU was found"),
        "failure ValueError()",
    ]
    assert log.getvalue().endswith("ValueError()\nTraceback\n  line\n")
    logs.write("server", level="error", message="one\ntwo", trace="Traceback\n  \x1b[31mline\n")
    assert log.getvalue().endswith("error one\\x0atwo\nTraceback\n  \\x1b[31mline\n")


@pytest.mark.parametrize(
    ("options", "is_terminal", "form"),
    [
        ({}, True, "text"),
        ({}, False, "json"),
        ({"log_prompts": True}, True, "json"),
        ({"log": "json"}, True, "json"),
        ({"log": "text"}, False, "text"),
        ({"log": "none"}, True, ""),
        ({"quiet": True}, True, ""),
        ({"log": "FILE"}, True, "file"),
    ],
    ids=str,
)
def test_forms(
    options: dict[str, Any], is_terminal: bool, form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream, file = io.StringIO(), tmp_path / "log.jsonl"
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    given = {"quiet": False, "log": None, "log_prompts": False, **options}
    if given["log"] == "FILE":
        given["log"] = str(file)
    with serve._open_logs(argparse.Namespace(**given)) as logs:
        logs.write("engine", message="hello")
    written = file.read_text("utf-8") if form == "file" else stream.getvalue()
    assert stream.getvalue() == ("" if form == "file" else written)
    if form == "text":
        assert re.fullmatch(r"[\d:]+ hello\n", written)
    elif form:
        assert json.loads(written)["message"] == "hello"
    else:
        assert written == ""
