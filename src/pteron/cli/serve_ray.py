"""pteron serve --ray: replicas of a model, on this machine or on a cluster."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from pteron.cli.arguments import number, positive
from pteron.cli.terminal import note
from pteron.errors import InputError

_OWN = ("ray_address", "replicas", "replica_gpus", "replica_cpus", "doors")
_ALONE = ("certificate", "private_key", "log", "grace")  # what Ray does in a way of its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("on more machines (the extra `ray`)")
    group.add_argument(
        "--ray", action="store_true", help="by Ray Serve, on a cluster's machines or on this one alone"
    )
    group.add_argument(
        "--ray-address", metavar="HOST:PORT", help="of a cluster (default: $RAY_ADDRESS, or none)"
    )
    group.add_argument(
        "--replicas",
        metavar="N|MIN-MAX",
        type=replicas,
        help="how many of the model there are; a range follows the number of requests (default: 1)",
    )
    group.add_argument(
        "--replica-gpus", metavar="N", type=number(0), help="GPUs set aside for each (default: 0)"
    )
    group.add_argument(
        "--replica-cpus", metavar="N", type=number(0), help="CPUs set aside for each (default: 1)"
    )
    group.add_argument(
        "--doors", metavar="N", type=positive, help="processes that pass requests on (default: 1)"
    )


def check(arguments: argparse.Namespace) -> None:
    """Complain about options that belong to the other way of serving."""
    if not arguments.ray:
        for name in _OWN:
            if getattr(arguments, name) is not None:
                raise InputError(f"{_option(name)} is for --ray")
        return
    for name in _ALONE:
        if getattr(arguments, name) is not None:
            raise InputError(f"{_option(name)} is not for --ray: see docs/serve.md")
    if arguments.cache_bytes is not None and arguments.sequences is None:
        raise InputError("--cache-bytes with --ray needs --sequences, which replicas are scaled by")


def serve(arguments: argparse.Namespace, model: str, name: str, common: Mapping[str, Any]) -> None:
    """Serve a model until a signal ends it. `common` is what both ways of serving have."""
    from pteron.serving.cluster import Options
    from pteron.serving.cluster.launch import run

    own = {
        "replicas": arguments.replicas,
        "gpus": arguments.replica_gpus,
        "cpus": arguments.replica_cpus,
        "doors": arguments.doors,
        "sequences": arguments.sequences,
        "cache_bytes": arguments.cache_bytes,
    }
    options = Options(
        model,
        name,
        tokenizer=arguments.tokenizer,
        data=tuple(arguments.data),
        device=arguments.adapter,
        digits=arguments.digits,
        queue=arguments.queue,
        logs_prompts=arguments.log_prompts,
        is_quiet=arguments.quiet,
        **{key: value for key, value in own.items() if value is not None},
        **common,
    )
    run(
        options,
        address=arguments.ray_address,
        host=arguments.host,
        port=arguments.port,
        ready=lambda address: print(f"{name} is served at {address}", flush=True),
        waits=lambda why: note(f"{name} is not served yet: {why}"),
    )


def replicas(text: str) -> int | tuple[int, int]:
    """So many, or a range."""
    found = re.fullmatch(r"([1-9]\d{0,5})(?:-([1-9]\d{0,5}))?", text, re.ASCII)
    if not found or (found[2] and int(found[1]) > int(found[2])):
        raise argparse.ArgumentTypeError(f"expected a number or a range, as 2 or 1-4, not {text!r}")
    return (int(found[1]), int(found[2])) if found[2] else int(found[1])


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
