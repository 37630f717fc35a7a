"""pteron serve --ray: replicas of a model, on this machine or on a cluster."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from pteron.cli.arguments import number, positive
from pteron.cli.terminal import print_note
from pteron.errors import InputError

_RAY_ONLY = ("ray_address", "replicas", "replica_gpus", "replica_cpus", "proxies")
_WITHOUT_RAY = ("certificate", "private_key", "log", "grace")  # with Ray its own settings apply


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("replicas on several GPUs or machines (the extra `ray`)")
    group.add_argument("--ray", action="store_true", help="run replicas of the model with Ray Serve")
    group.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help="address of a Ray cluster (default: $RAY_ADDRESS; without it, this machine alone)",
    )
    group.add_argument(
        "--replicas",
        metavar="N|MIN-MAX",
        type=replicas,
        help="number of replicas; a range scales with the number of requests (default: 1)",
    )
    group.add_argument("--replica-gpus", metavar="N", type=number(0), help="GPUs of a replica (default: 0)")
    group.add_argument("--replica-cpus", metavar="N", type=number(0), help="CPUs of a replica (default: 1)")
    group.add_argument(
        "--proxies", metavar="N", type=positive, help="processes that route requests (default: 1)"
    )
    group.add_argument("--doors", dest="proxies", type=positive, help=argparse.SUPPRESS)  # the former name


def check(arguments: argparse.Namespace) -> None:
    """Refuse options that have no effect with, or without, --ray."""
    if not arguments.ray:
        for name in _RAY_ONLY:
            if getattr(arguments, name) is not None:
                raise InputError(f"{_option(name)} needs --ray")
        return
    for name in _WITHOUT_RAY:
        if getattr(arguments, name) is not None:
            raise InputError(f"{_option(name)} has no effect with --ray: see docs/serve.md")
    if arguments.cache_bytes is not None and arguments.sequences is None:
        raise InputError("--cache-bytes with --ray needs --sequences, by which replicas are scaled")


def serve(arguments: argparse.Namespace, model: str, name: str, common: Mapping[str, Any]) -> None:
    """Serve a model until a signal ends it. `common` are the options that do not depend on Ray."""
    from pteron.serving.cluster import Options
    from pteron.serving.cluster.launch import run

    optional = {
        "replicas": arguments.replicas,
        "gpus": arguments.replica_gpus,
        "cpus": arguments.replica_cpus,
        "proxies": arguments.proxies,
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
        **{key: value for key, value in optional.items() if value is not None},
        **common,
    )
    run(
        options,
        address=arguments.ray_address,
        host=arguments.host,
        port=arguments.port,
        ready=lambda address: print(f"{name} is served at {address}", flush=True),
        waits=lambda why: print_note(f"{name} is not served yet: {why}"),
    )


def replicas(text: str) -> int | tuple[int, int]:
    """`2`, or `1-4`."""
    found = re.fullmatch(r"([1-9]\d{0,5})(?:-([1-9]\d{0,5}))?", text, re.ASCII)
    if not found or (found[2] and int(found[1]) > int(found[2])):
        raise argparse.ArgumentTypeError(f"expected a number or a range, such as 2 or 1-4, not {text!r}")
    return (int(found[1]), int(found[2])) if found[2] else int(found[1])


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
