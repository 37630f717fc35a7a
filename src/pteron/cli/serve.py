"""pteron serve: a model over HTTP, for OpenAI's clients and for browsers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pteron.cli import serve_ray
from pteron.cli.arguments import add_adapter, add_default, add_examples, add_repeatable, number, positive
from pteron.cli.llm_arguments import add_digits, add_model_files, find_model
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_note
from pteron.llm.arguments import SEQUENCES_MAX, WAITING_MAX
from pteron.llm.models import names
from pteron.serving.http.limits import Limits

if TYPE_CHECKING:
    from pteron.llm.engine import Engine
    from pteron.serving.encoder import Embedder

_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_PACKAGES = ("fastapi", "uvicorn", "prometheus_client")
_GRACE = 30.0  # seconds
# The fields of `Limits` that have an option --max-NAME.
_LIMITS = {
    "new_tokens": ("N", positive, "tokens of an answer; also the length of a chat answer without max_tokens"),
    "prompt_tokens": ("N", positive, "tokens of a prompt; the model's context is a limit too"),
    "choices": ("N", positive, "answers to one request: its `n` times its prompts"),
    "body_bytes": ("BYTES", positive, "size of a request's body"),
    "header_bytes": ("BYTES", positive, "size of a request's headers"),
    "seconds": ("S", number(0.001), "duration of a request; a longer answer is cut"),
    "read_seconds": ("S", number(0.001), "time for a client to read what is sent to it"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a folder made by `pteron export llm`, a program (.pte), or a known model: "
        f"{', '.join(names())}",
    )
    add_model_files(parser)
    network = parser.add_argument_group("network")
    network.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: %(default)s: this machine only)"
    )
    network.add_argument("--port", type=_port, default=8000, help="0: any free port (default: %(default)s)")
    network.add_argument("--certificate", metavar="FILE", help="TLS certificate (PEM), for https")
    network.add_argument("--private-key", metavar="FILE", help="private key of the certificate (PEM)")
    add_repeatable(
        network,
        "--allow-host",
        "NAME",
        "accept requests for this host name",
        default="this machine's names if it listens there only, else any name",
    )
    add_repeatable(network, "--cors", "ORIGIN", "web site whose pages may use the server")
    access = parser.add_argument_group("access")
    add_repeatable(
        access,
        "--api-key",
        "KEY",
        "key that clients must send; other users of this machine can see it, so prefer --api-key-file, or "
        "$PTERON_API_KEYS with commas between keys",
    )
    access.add_argument("--api-key-file", metavar="FILE", help="file with one key per line")
    access.add_argument("--open-metrics", action="store_true", help="/metrics needs no key")
    access.add_argument("--closed-page", action="store_true", help="the chat page at / needs a key too")
    access.add_argument("--no-page", action="store_true", help="no chat page at /")
    model = parser.add_argument_group("model and limits")
    model.add_argument("--name", help="name of the model in the API (default: the folder's name)")
    add_repeatable(model, "--alias", "NAME", "another name of the model")
    model.add_argument(
        "--sequences",
        metavar="N",
        type=positive,
        help=f"answers generated at once (default: {SEQUENCES_MAX})",
    )
    model.add_argument("--cache-bytes", metavar="BYTES", type=positive, help="maximum size of all KV caches")
    add_default(
        model, "--queue", "N", positive, WAITING_MAX, "answers that may wait; further requests get status 429"
    )
    for name, (unit, kind, purpose) in _LIMITS.items():
        flag = f"--max-{name.replace('_', '-')}"
        add_default(model, flag, unit, kind, getattr(Limits(), name), f"maximum {purpose}")
    serve_ray.add_arguments(parser)
    parser.add_argument(
        "--grace",
        metavar="S",
        type=number(0),
        help=f"seconds for running answers to finish after Ctrl-C or SIGTERM (default: {_GRACE:g})",
    )
    parser.add_argument(
        "--log", metavar="FILE", help="append the log, as JSON lines, to FILE (default: standard error)"
    )
    parser.add_argument("--log-prompts", action="store_true", help="log prompts and answers too")
    parser.add_argument("--quiet", action="store_true", help="no log")
    add_digits(parser)
    add_adapter(parser)
    add_examples(
        parser,
        "pteron serve stories15m                      # then open http://127.0.0.1:8000 in a browser",
        "pteron serve folder --port 0 --name my-model",
        "PTERON_API_KEYS=secret pteron serve folder --host 0.0.0.0",
        "pteron serve folder --ray --replicas 1-4 --replica-gpus 1",
        "",
        "The first Ctrl-C or SIGTERM lets running answers finish, the second cuts them. See docs/serve.md.",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.extras import check_installed

    serve_ray.check(arguments)
    check_installed(_PACKAGES, "serving a model", "serve")
    if arguments.ray:
        check_installed(("ray",), "serving a model on many machines", "ray")
    from pteron.serving.http import Logs, create_app, listening, run
    from pteron.serving.http.api_keys import ApiKeys, read_api_keys

    keys = read_api_keys(arguments.api_key, arguments.api_key_file, os.environ)
    ApiKeys(keys)  # reports malformed keys before the model is loaded
    path = find_model(arguments.model)
    name = arguments.name or (path.name if path.is_dir() else path.stem)
    if not keys and not _is_local(arguments.host):
        print_note(f"everyone who can reach {arguments.host} can use the model: there is no --api-key")
    if arguments.ray:
        is_name = not Path(arguments.model).exists()  # its path may differ on other machines
        serve_ray.serve(
            arguments,
            arguments.model if is_name else str(path.resolve()),
            name,
            _app_options(keys, arguments),
        )
        return 0
    with (
        _open_log(arguments) as stream,
        listening(arguments.host, arguments.port) as listener,
        _open_served(path, arguments) as model,
    ):
        logs = Logs(stream, with_prompts=arguments.log_prompts)
        run(
            create_app(model, name=name, logs=logs, **_app_options(keys, arguments)),
            listener,
            grace=_GRACE if arguments.grace is None else arguments.grace,
            certificate=arguments.certificate,
            private_key=arguments.private_key,
            ready=lambda address: print(f"{name} is served at {address}", flush=True),
        )
    return 0


def _app_options(keys: tuple[str, ...], arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `create_app` that do not depend on where it runs."""
    hosts = [*_LOCAL, *arguments.allow_host] if _is_local(arguments.host) else arguments.allow_host
    return {
        "aliases": tuple(arguments.alias),
        "api_keys": keys,
        "limits": Limits(**{limit: getattr(arguments, f"max_{limit}") for limit in _LIMITS}),
        "page": not arguments.no_page,
        "open_page": not arguments.closed_page,
        "open_metrics": arguments.open_metrics,
        "hosts": tuple(hosts),
        "origins": tuple(arguments.cors),
    }


@contextmanager
def _open_served(path: Path, arguments: argparse.Namespace) -> Generator[Engine | Embedder, None, None]:
    """The model at a path: a language model in an engine, or an embedder."""
    from pteron.llm import LLM
    from pteron.llm.engine import Engine
    from pteron.serving.hidden_states import open_served

    with show_progress(f"loading {path.name}"):
        model = open_served(
            path,
            arguments.tokenizer,
            data=arguments.data,
            device=arguments.adapter,
            digits=arguments.digits,
            sequences=arguments.sequences,
            cache_bytes=arguments.cache_bytes,
        )
    if isinstance(model, LLM):
        with model, Engine(model, waiting=arguments.queue) as engine:
            yield engine
    else:
        with model:
            yield model


@contextmanager
def _open_log(arguments: argparse.Namespace) -> Generator[TextIO | None, None, None]:
    if arguments.quiet:
        yield None
    elif arguments.log is None:
        yield sys.stderr
    else:
        with Path(arguments.log).open("a", encoding="utf-8") as stream:
            yield stream


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, not {text!r}")
    return int(text)
