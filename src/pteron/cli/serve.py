"""pteron serve: a model behind HTTP, for OpenAI's clients and for browsers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pteron.cli import serve_ray
from pteron.cli.arguments import add_adapter, examples, number, positive
from pteron.cli.language import model_path
from pteron.cli.progress import shown
from pteron.cli.terminal import note
from pteron.llm.arguments import SEQUENCES_MAX, WAITING_MAX
from pteron.llm.models import names
from pteron.serving.http.limits import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from pteron.llm.engine import Engine
    from pteron.serving.embedder import Embedder
    from pteron.serving.http import Logs

_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_PACKAGES = ("fastapi", "uvicorn", "prometheus_client")
_GRACE = 30.0  # seconds
# Options that are limits, by their names there; the defaults are the limits' own.
_LIMITS = {
    "new_tokens": ("N", positive, "tokens of an answer at most; also where a chat request names no number"),
    "prompt_tokens": ("N", positive, "tokens of a prompt at most (the model's context bounds it too)"),
    "choices": ("N", positive, "answers of one request at most (its `n`, times its prompts)"),
    "body_bytes": ("BYTES", positive, "size of a request at most"),
    "header_bytes": ("BYTES", positive, "size of a request's headers at most"),
    "seconds": ("S", number(0.001), "time of a request at most; its answer ends there"),
    "read_seconds": ("S", number(0.001), "time that a client may take to accept what is sent to it"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=f"a folder made by `pteron export llm`, a program (.pte), or by name: {', '.join(names())}",
    )
    parser.add_argument(
        "--tokenizer", metavar="FILE", help="a tokenizer (default: the one beside the program)"
    )
    parser.add_argument(
        "--data", metavar="FILE.ptd", action="append", default=[], help="a weight file (repeatable)"
    )
    where = parser.add_argument_group("where it listens")
    where.add_argument(
        "--host", default="127.0.0.1", help="who can reach it (default: %(default)s: this machine alone)"
    )
    where.add_argument("--port", type=_port, default=8000, help="0: one that is free (default: %(default)s)")
    where.add_argument("--certificate", metavar="FILE", help="a TLS certificate (PEM), for https")
    where.add_argument("--private-key", metavar="FILE", help="its private key (PEM)")
    where.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name that it answers to (repeatable; default: this machine's, where it listens there alone)",
    )
    where.add_argument(
        "--cors",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="a site whose pages may use it (repeatable)",
    )
    who = parser.add_argument_group("who may use it")
    who.add_argument(
        "--api-key",
        metavar="KEY",
        action="append",
        default=[],
        help="repeatable; other users of the machine see it: rather $PTERON_API_KEYS, with commas, or a file",
    )
    who.add_argument("--api-key-file", metavar="FILE", help="keys, one in each line")
    who.add_argument("--open-metrics", action="store_true", help="/metrics without a key")
    who.add_argument("--closed-page", action="store_true", help="the page at / only with a key, too")
    who.add_argument("--no-page", action="store_true", help="no page at /")
    what = parser.add_argument_group("what it serves")
    what.add_argument("--name", help="what clients call the model (default: the folder's name)")
    what.add_argument(
        "--alias", metavar="NAME", action="append", default=[], help="another name (repeatable)"
    )
    what.add_argument(
        "--sequences",
        metavar="N",
        type=positive,
        help=f"answers side by side (default: {SEQUENCES_MAX})",
    )
    what.add_argument(
        "--cache-bytes", metavar="BYTES", type=positive, help="GPU memory of all their caches at most"
    )
    what.add_argument(
        "--queue",
        metavar="N",
        type=positive,
        default=WAITING_MAX,
        help="answers that wait, before 429 (default: %(default)s)",
    )
    for name, (unit, kind, purpose) in _LIMITS.items():
        what.add_argument(
            f"--max-{name.replace('_', '-')}",
            metavar=unit,
            type=kind,
            default=getattr(Limits(), name),
            help=f"{purpose} (default: %(default)s)",
        )
    serve_ray.add_arguments(parser)
    parser.add_argument(
        "--grace",
        metavar="S",
        type=number(0),
        help=f"seconds for answers to finish at the end (default: {_GRACE:g})",
    )
    parser.add_argument("--log", metavar="FILE", help="where JSON lines go (default: standard error)")
    parser.add_argument("--log-prompts", action="store_true", help="log what is asked and answered")
    parser.add_argument("--quiet", action="store_true", help="no log")
    parser.add_argument("--digits", metavar="N", type=int, help="as in `pteron generate`")
    add_adapter(parser)
    examples(
        parser,
        "pteron serve stories15m                    # then http://127.0.0.1:8000 in a browser",
        "pteron serve folder --port 0 --name my-model",
        "PTERON_API_KEYS=secret pteron serve folder --host 0.0.0.0",
        "pteron serve folder --ray --replicas 1-4 --replica-gpus 1",
        "",
        "The first Ctrl-C or SIGTERM lets answers finish, the second does not. docs/serve.md has more.",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.extras import check_installed

    serve_ray.check(arguments)
    check_installed(_PACKAGES, "serving a model", "serve")
    if arguments.ray:
        check_installed(("ray",), "serving a model on many machines", "ray")
    from pteron.serving.http import Logs, listening, run
    from pteron.serving.http.keys import Keys, given_keys

    keys = given_keys(arguments.api_key, arguments.api_key_file, os.environ)
    Keys(keys)  # what is wrong with them is said before a model is loaded
    path = model_path(arguments.model)
    name = arguments.name or (path.name if path.is_dir() else path.stem)
    if not keys and not _is_local(arguments.host):
        note(f"anybody who reaches {arguments.host} may use the model: there is no --api-key")
    if arguments.ray:
        is_name = not Path(arguments.model).exists()  # other machines have it elsewhere
        model = arguments.model if is_name else str(path.resolve())
        serve_ray.serve(arguments, model, name, _common(keys, arguments))
        return 0
    with (
        _log(arguments) as stream,
        listening(arguments.host, arguments.port) as place,
        _opened(path, arguments) as model,
    ):
        logs = Logs(stream, with_prompts=arguments.log_prompts)
        app = _app(model, name, keys, logs, arguments)
        run(
            app,
            place,
            grace=_GRACE if arguments.grace is None else arguments.grace,
            certificate=arguments.certificate,
            private_key=arguments.private_key,
            ready=lambda address: print(f"{name} is served at {address}", flush=True),
        )
    return 0


def _app(
    model: Engine | Embedder, name: str, keys: tuple[str, ...], logs: Logs, arguments: argparse.Namespace
) -> FastAPI:
    from pteron.serving.http import create_app

    return create_app(model, name=name, logs=logs, **_common(keys, arguments))


def _common(keys: tuple[str, ...], arguments: argparse.Namespace) -> dict[str, Any]:
    """What an application is made with, wherever it runs."""
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
def _opened(path: Path, arguments: argparse.Namespace) -> Generator[Engine | Embedder, None, None]:
    """The model at a path: a language model in its engine, or what makes vectors."""
    from pteron.llm import LLM
    from pteron.llm.engine import Engine
    from pteron.serving.opening import opened

    with shown(f"loading {path.name}"):
        model = opened(
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
def _log(arguments: argparse.Namespace) -> Generator[TextIO | None, None, None]:
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
