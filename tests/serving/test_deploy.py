"""The files of deploy/ fit the server: commands, ports, paths, times. The container's commands run here."""

from __future__ import annotations

import argparse
import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pteron.cli import build_parser
from pteron.folders import cache_folder

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("uvicorn", reason="needs the extra `serve`")

from pteron.serving.http import server, telemetry
from pteron.serving.http.app import status_router

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PATHS = {route.path for route in status_router.routes if hasattr(route, "path")}

if not DEPLOY.is_dir():
    pytest.skip("deploy/ is only in the repository", allow_module_level=True)


def serve_arguments(words: list[str]) -> argparse.Namespace:
    """The arguments of `pteron serve`, by its own parser."""
    assert words[:2] == ["pteron", "serve"]
    return build_parser(["serve"]).parse_args(words[1:])


DEFAULTS = serve_arguments(["pteron", "serve", "x"])
CLOSE_SECONDS = 5  # to close the model and end the process


def drain_seconds(arguments: argparse.Namespace) -> float:
    """From the signal to the end of the process, at most."""
    assert arguments.grace is not None
    return float(arguments.grace) + server._CANCEL_SECONDS + telemetry._FLUSH_SECONDS + CLOSE_SECONDS


# Container ---------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """The instructions of the container file, each in one line."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(words[0], words[1].strip()) for line in lines if (words := line.split(" ", 1)) != [""]]


def values(name: str) -> list[str]:
    return [value for word, value in instructions() if word == name]


def health_command() -> list[str]:
    (check,) = values("HEALTHCHECK")
    found: list[str] = json.loads(check.partition("CMD ")[2])
    return found


def test_the_container_serves_the_port() -> None:
    entry, command = json.loads(values("ENTRYPOINT")[0]), json.loads(values("CMD")[0])
    arguments = serve_arguments([*entry, *command])
    assert values("EXPOSE") == [str(arguments.port)] == [str(DEFAULTS.port)]
    assert arguments.host == "0.0.0.0"
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", " ".join(health_command()))
    assert found
    assert found.groups() == (str(arguments.port), "/health")
    assert "/health" in PATHS


def test_the_container_is_no_root_and_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    (user,) = values("USER")
    assert user.isdigit()
    assert int(user) > 0
    assert any(f"useradd --uid {user}" in run for run in values("RUN"))
    variables = dict(word.split("=", 1) for word in shlex.split(values("ENV")[0]))
    monkeypatch.setenv("PTERON_CACHE", variables["PTERON_CACHE"])
    assert cache_folder().is_relative_to(values("VOLUME")[0])
    assert Path(variables["HF_HOME"]).is_relative_to(values("VOLUME")[0])


def test_the_container_installs_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (installed,) = [run for run in values("RUN") if "pip install" in run]
    extras = re.findall(r"\.whl\)\[([\w,]+)\]", installed)[0].split(",")
    assert "serve" in extras
    assert set(extras) <= set(project["optional-dependencies"])
    versions = {image.removeprefix("python:").split("-")[0] for image in values("FROM")}
    assert len(versions) == 1
    assert f"Programming Language :: Python :: {versions.pop()}" in project["classifiers"]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the container runs Linux")
def test_the_commands_of_the_container(tmp_path: Path) -> None:
    """Its build stage, its server and its health check, in a folder instead of a container."""
    source, site = tmp_path / "src", tmp_path / "site"
    source.mkdir()
    stage = instructions()
    stage = stage[: stage.index(("FROM", "python:3.12-slim"))]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tools / "python").chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    for word, value in stage:
        if word == "COPY":
            *files, target = value.split()
            for file in files:
                place = source / target / (file if target == "./" else "")
                if (ROOT / file).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__", "libpteron_encode.*")
                    shutil.copytree(ROOT / file, place, ignore=ignored)
                else:
                    shutil.copy(ROOT / file, place)
        elif word == "RUN" and "apt-get" not in value:
            ran = subprocess.run(
                ["sh", "-c", value], cwd=source, env={**os.environ, **path}, capture_output=True, text=True
            )
            if "hatchling" in ran.stderr and ran.returncode:
                pytest.skip("hatchling cannot be downloaded")
            if "build-native" in value and shutil.which("cc") is None:
                pytest.skip("there is no C compiler")
            assert ran.returncode == 0, ran.stderr
    (wheel,) = (source / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert (site / "pteron/gpu/libpteron_encode.so").exists()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [*json.loads(values("ENTRYPOINT")[0]), *json.loads(values("CMD")[0])]
    words = [port if word == str(DEFAULTS.port) else word for word in words]
    environment = {**os.environ, **path, "PYTHONPATH": str(site), "PTERON_CACHE": str(tmp_path / "cache")}
    check = [word.replace(str(DEFAULTS.port), port) for word in health_command()]
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        assert subprocess.run(check, env=environment, capture_output=True).returncode != 0  # not yet
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"stories15m is served at http://0.0.0.0:")
        assert subprocess.run(check, env=environment).returncode == 0
        process.send_signal(getattr(signal, values("STOPSIGNAL")[0]))
        began = time.monotonic()
        assert process.wait(60) == 0, log.read_text()
        assert time.monotonic() - began < 30
    finally:
        process.kill()
        process.communicate()


def test_stopping_the_container_leaves_time_to_drain() -> None:
    page = (ROOT / "docs/deploy.md").read_text("utf-8")
    (words,) = re.findall(r"docker run -d .*\\\n.* pteron (\S.*)", page)
    (seconds,) = set(
        re.findall(r"docker stop --time (\d+)", page + (DEPLOY / "Containerfile").read_text("utf-8"))
    )
    assert int(seconds) >= drain_seconds(serve_arguments(["pteron", "serve", *words.split()]))


# systemd -----------------------------------------------------------------------------------------


def unit() -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys have capitals
    parser.read(DEPLOY / "pteron.service", "utf-8")
    return {name: dict(parser[name]) for name in parser.sections()}


def test_the_unit_fits_the_command() -> None:
    service = unit()["Service"]
    words = shlex.split(service["ExecStart"])
    arguments = serve_arguments([Path(words[0]).name, *words[1:]])
    assert arguments.log == "json"
    assert float(service["TimeoutStopSec"]) >= drain_seconds(arguments)
    assert service["KillSignal"] == "SIGTERM"
    assert service["Restart"] == "on-failure"
    folder = f"/var/cache/{service['CacheDirectory']}"
    for variable in service["Environment"].split():
        assert variable.partition("=")[2].startswith(folder)


def test_the_unit_behind_a_reverse_proxy() -> None:
    """The commented command is the other one, with a host name that a proxy may pass on."""
    (command,) = re.findall(r"^#ExecStart=(.*)", (DEPLOY / "pteron.service").read_text("utf-8"), re.MULTILINE)
    others, _, name = command.partition(" --allow-host ")
    assert others == unit()["Service"]["ExecStart"]
    assert serve_arguments(["pteron", *shlex.split(command)[1:]]).allow_host == [name]
    assert f"`--allow-host {name}`" in (ROOT / "docs/deploy.md").read_text("utf-8")


def test_the_unit_is_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "pteron.service").read_text("utf-8")
    command = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)[0]
    copied = tmp_path / "pteron.service"
    copied.write_text(text.replace(command, sys.executable), "utf-8")  # the program must exist
    done = subprocess.run(["systemd-analyze", "verify", str(copied)], capture_output=True, text=True)
    assert "pteron.service" not in done.stderr, done.stderr


# Kubernetes --------------------------------------------------------------------------------------


def manifests() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))
    return {each["kind"]: each for each in found}


def test_the_pod_fits_the_command_and_the_container() -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = serve_arguments([*json.loads(values("ENTRYPOINT")[0]), *container["args"]])
    (port,) = container["ports"]
    assert port["containerPort"] == arguments.port
    stop = container["lifecycle"]["preStop"]["exec"]["command"]
    assert stop[0] == "sleep"
    assert pod["terminationGracePeriodSeconds"] >= int(stop[1]) + drain_seconds(arguments)
    assert pod["securityContext"]["runAsUser"] == int(values("USER")[0])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["volumeMounts"][0]["mountPath"] == values("VOLUME")[0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    wanted = {"startupProbe": "/ready", "readinessProbe": "/ready", "livenessProbe": "/health"}
    assert container["readinessProbe"]["failureThreshold"] > 1  # a queue that is full for a moment
    for probe, path in wanted.items():
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
        assert path in PATHS


def test_names_of_the_manifests_agree() -> None:
    found = manifests()
    template = found["Deployment"]["spec"]["template"]
    for selector in (
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
    ):
        assert selector.items() <= template["metadata"]["labels"].items()
    pod, (container,) = template["spec"], template["spec"]["containers"]
    (volume,) = pod["volumes"]
    claim = found["PersistentVolumeClaim"]["metadata"]["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim
    assert container["volumeMounts"][0]["name"] == volume["name"]
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    annotations = template["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] in PATHS
    assert annotations["prometheus.io/port"] == str(container["ports"][0]["containerPort"])
    text = (DEPLOY / "kubernetes.yaml").read_text("utf-8")
    secret = container["envFrom"][0]["secretRef"]["name"]
    assert f"create secret generic {secret} --from-literal=PTERON_API_KEYS=" in text
