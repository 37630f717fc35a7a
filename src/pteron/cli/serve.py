"""pteron serve: a model over HTTP, for OpenAI's clients and for browsers; with --ray, replicas of it on this
machine or on a cluster."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from pteron.cli.arguments import Options, add_examples, number, positive
from pteron.cli.llm_arguments import add_cache, add_model_files, add_speculate, load_settings
from pteron.cli.named_model import find_model, given_model
from pteron.cli.progress import show_progress
from pteron.cli.serve_banner import Banner, Kind, key_source
from pteron.cli.served_models import GivenModel, expand_folders, find_models, split_name
from pteron.cli.terminal import StderrAboveBar, device_notes, print_note
from pteron.errors import InputError, PteronError
from pteron.llm.arguments import SEQUENCES_MAX, WAITING_MAX
from pteron.serving.http.limits import Limits

if TYPE_CHECKING:
    from pteron.embeddings.encoder import Embedder
    from pteron.llm.engine import Engine
    from pteron.names.kinds import Located
    from pteron.serving.http import Logs, Traces
    from pteron.serving.http.models import ModelSource
    from pteron.speech import Transcriber

_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_PACKAGES = ("fastapi", "uvicorn", "prometheus_client")
_GRACE = 30.0  # seconds
_KEEP_ALIVE = 300.0  # seconds
_ONE_MODEL = ("name", "tokenizer", "data", "speculate")  # options for one model only
_RAY_ONLY = ("ray_address", "replicas", "replica_gpus", "replica_cpus", "proxies")
_WITHOUT_RAY = ("certificate", "private_key", "log", "grace", "traces")  # with Ray its own settings apply
# The fields of `Limits` that have an option --max-NAME.
_LIMITS = {
    "new_tokens": ("N", positive, "tokens of an answer; also the length of a chat answer without max_tokens"),
    "prompt_tokens": ("N", positive, "tokens of a prompt; the model's context is a limit too"),
    "choices": ("N", positive, "answers to one request: its `n` times its prompts"),
    "body_bytes": ("BYTES", positive, "size of a request's body"),
    "audio_bytes": ("BYTES", positive, "size of a request with sound"),
    "audio_seconds": ("S", number(0.001), "duration of the sound in a request"),
    "header_bytes": ("BYTES", positive, "size of a request's headers"),
    "connections": ("N", positive, "connections; at most half of the files that the process may open"),
    "seconds": ("S", number(0.001), "duration of a request; a longer answer is cut"),
    "read_seconds": ("S", number(0.001), "time for a client to read what is sent to it"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model()
    options.parser.add_argument(
        "more",
        metavar="MODEL",
        nargs="*",
        help="more models, each loaded at its first request; NAME=MODEL gives a model another name",
    )
    add_model_files(options)
    network = options.group("network")
    network.parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: %(default)s: this machine only)"
    )
    network.add("--port", "PORT", "0: any free port", number(0, 65535, int), 8000)
    network.add("--certificate", "FILE", "TLS certificate (PEM), for https")
    network.add("--private-key", "FILE", "private key of the certificate (PEM)")
    any_host = "this machine's names if it listens there only, else any name"
    network.repeatable("--allow-host", "NAME", "accept requests for this host name", default=any_host)
    network.repeatable("--cors", "ORIGIN", "web site whose pages may use the server")
    access = options.group("access")
    access.repeatable(
        "--api-key",
        "KEY",
        "key that clients must send; other users of this machine can see it, so prefer --api-key-file, or "
        "$PTERON_API_KEYS with commas between keys",
    )
    access.add("--api-key-file", "FILE", "file with one key per line")
    access.flag("--new-key", "make a random key for this run, and print it")
    access.flag("--open-metrics", "/metrics needs no key")
    access.flag("--closed-page", "the chat page at / needs a key too")
    access.flag("--no-page", "no chat page at /")
    model = options.group("model and limits")
    model.parser.add_argument(
        "--name", help="name of the model in the API (default: MODEL, or the file's name)"
    )
    model.repeatable("--alias", "NAME", "another name of the model; ALIAS=NAME for one of several models")
    idle = "unload one of several models after S seconds without a request, or never: inf"
    model.add("--keep-alive", "S", f"{idle} (default: {_KEEP_ALIVE:g})", number(0.001))
    lora = (
        "LoRA adapter of the model: a PEFT folder, a GGUF file or owner/name; clients choose it as the model "
    )
    lora += "NAME; MODEL:NAME=PATH for one of several models"
    model.repeatable("--lora", "NAME=PATH", lora, adapter_path)
    model.add("--sequences", "N", f"answers generated at once (default: {SEQUENCES_MAX})", positive)
    add_cache(model)
    model.add("--cache-bytes", "BYTES", "maximum size of all KV caches", positive)
    waiting = "answers that may wait; further requests get status 429"
    model.add("--queue", "N", waiting, positive, WAITING_MAX)
    for name, (unit, kind, purpose) in _LIMITS.items():
        flag = f"--max-{name.replace('_', '-')}"
        model.add(flag, unit, f"maximum {purpose}", kind, getattr(Limits(), name))
    ray = options.group("replicas on several GPUs or machines (the extra `ray`)")
    ray.flag("--ray", "run replicas of the model with Ray Serve")
    address = "address of a Ray cluster (default: $RAY_ADDRESS; without it, this machine alone)"
    ray.add("--ray-address", "HOST:PORT", address)
    number_of = "number of replicas; a range scales with the number of requests (default: 1)"
    ray.add("--replicas", "N|MIN-MAX", number_of, replicas)
    ray.add("--replica-gpus", "N", "GPUs of a replica (default: 0)", number(0))
    ray.add("--replica-cpus", "N", "CPUs of a replica (default: 1)", number(0))
    ray.add("--proxies", "N", "processes that route requests (default: 1)", positive)
    grace = f"seconds for running answers to finish after Ctrl-C or SIGTERM (default: {_GRACE:g})"
    options.add("--grace", "S", grace, number(0), also=["--drain-seconds"])
    log = "log on standard error: text (a short line per request), json or none; another word is a FILE that "
    log += "JSON lines are appended to (default: text on a terminal, else json)"
    options.add("--log", "FORM", log)
    traces = "send traces to this OTLP endpoint, over HTTP (the extra `telemetry`; default: as $OTEL_* say)"
    options.add("--traces", "URL", traces)
    options.flag("--log-prompts", "log prompts and answers too; they need json or a FILE")
    options.flag("--quiet", "no log, as --log none")
    options.precision(of_llm=True)
    add_speculate(options)
    options.device()
    add_examples(
        parser,
        "pteron serve stories15m                      # then open http://127.0.0.1:8000 in a browser",
        "pteron serve folder --port 0 --name my-model",
        "pteron serve smollm2 stories15m embedder=folder  # each is loaded at its first request",
        "pteron serve models                          # a folder of models",
        "pteron serve folder --lora sql=adapters/sql --lora poet=poet.gguf",
        "PTERON_API_KEYS=secret pteron serve folder --host 0.0.0.0",
        "pteron serve folder --ray --replicas 1-4 --replica-gpus 1",
        "",
        "The first Ctrl-C or SIGTERM lets running answers finish, the second cuts them. See docs/serve.md.",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.extras import check_installed

    _check_ray(arguments)
    check_installed(_PACKAGES, "serving a model", "serve")
    if arguments.ray:
        check_installed(("ray",), "serving a model on many machines", "ray")
    from pteron.serving.http.api_keys import VARIABLE, ApiKeys, read_api_keys

    keys = read_api_keys(arguments.api_key, arguments.api_key_file, os.environ)
    ApiKeys(keys)  # reports malformed keys before the model is loaded
    new_key = secrets.token_urlsafe(24) if arguments.new_key else None
    keys += (new_key,) if new_key else ()
    make_banner = partial(
        Banner,
        keys=keys,
        new_key=new_key,
        key_source=key_source(arguments.api_key, arguments.api_key_file, VARIABLE),
        page=not (arguments.no_page or arguments.closed_page),
    )
    given = given_model(arguments)
    several = expand_folders([given, *arguments.more])
    if several != [given]:
        return _serve_several(several, make_banner, arguments)
    if arguments.keep_alive is not None:
        raise InputError("--keep-alive needs several models; one model stays loaded")
    own_name, given = split_name(given)
    located = find_model(given, arguments.context)
    name = arguments.name or own_name or located.name
    banner = make_banner([name])
    if arguments.ray:
        _warn_of_access(keys, arguments)
        named = _whole_path(given)
        _serve_ray(arguments, named, banner, _app_options(keys, arguments))
        return 0
    return _serve_here(_open_served(located, arguments), banner, arguments, name=name)


def _serve_several(
    given: list[str], make_banner: Callable[[Sequence[str]], Banner], arguments: argparse.Namespace
) -> int:
    """Serve several models, which are located now and loaded at their first request."""
    from pteron.serving.http.models import ModelSource

    for option in _ONE_MODEL:
        if getattr(arguments, option):
            raise InputError(f"{_option(option)} is for one model; NAME=MODEL names one of several")
    models = find_models(given, arguments)
    keep_alive = _KEEP_ALIVE if arguments.keep_alive is None else arguments.keep_alive
    banner = make_banner([model.names[0] for model in models])
    if arguments.ray:
        _warn_of_access(banner.keys, arguments)
        _serve_ray_several(arguments, models, keep_alive, banner)
        return 0
    sources = [
        ModelSource(
            model.names,
            partial(_open_served, model.located, arguments, model.adapters),
            tuple(model.adapters),
        )
        for model in models
    ]
    return _serve_here(nullcontext(sources), banner, arguments, keep_alive=keep_alive)


def _serve_here(
    opened: AbstractContextManager[Engine | Embedder | Transcriber | list[ModelSource]],
    banner: Banner,
    arguments: argparse.Namespace,
    **options: Any,
) -> int:
    """Serve a model, or several, in this process until a signal. `options` are those of `create_app`."""
    from pteron.serving.http import create_app, listening, run
    from pteron.serving.http.server import check_certificate

    check_certificate(arguments.certificate, arguments.private_key)
    with (
        _open_logs(arguments) as logs,
        listening(arguments.host, arguments.port) as listener,
        _open_traces(arguments, logs) as traces,
        opened as model,
    ):
        _warn_of_access(banner.keys, arguments, logs)
        kind = _kind_of(model)
        run(
            create_app(model, logs=logs, traces=traces, **options, **_app_options(banner.keys, arguments)),
            listener,
            grace=_GRACE if arguments.grace is None else arguments.grace,
            certificate=arguments.certificate,
            private_key=arguments.private_key,
            ready=lambda address: print("\n".join(banner.lines(address, kind)), flush=True),
        )
    return 0


def _kind_of(model: Engine | Embedder | Transcriber | list[ModelSource]) -> Kind:
    from pteron.embeddings.encoder import Embedder
    from pteron.speech import Transcriber

    if isinstance(model, list):
        return "models"
    if isinstance(model, Transcriber):
        return "audio"
    return "embeddings" if isinstance(model, Embedder) else "chat"


def _app_options(keys: Sequence[str], arguments: argparse.Namespace) -> dict[str, Any]:
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
def _open_served(
    located: Located, arguments: argparse.Namespace, adapters: Mapping[str, str] | None = None
) -> Generator[Engine | Embedder | Transcriber, None, None]:
    """A language model in an engine, or an embedder. `adapters` are by default those of --lora."""
    from pteron.embeddings.hidden_states import in_engine, open_served
    from pteron.tools.estimate.estimates import check_fits

    check_fits(located, arguments.device)
    with show_progress(f"loading {located.name}"):
        model = open_served(
            located,
            arguments.tokenizer,
            adapters=dict(arguments.lora) if adapters is None else dict(adapters),
            sequences=arguments.sequences,
            cache_bytes=arguments.cache_bytes,
            **load_settings(arguments),
        )
    with in_engine(model, waiting=arguments.queue) as served:
        yield served


@contextmanager
def _open_logs(arguments: argparse.Namespace) -> Generator[Logs, None, None]:
    """The log, in the form that --log names."""
    from pteron.serving.http import Logs
    from pteron.serving.http.log_text import text_line

    by_default = "text" if sys.stderr.isatty() and not arguments.log_prompts else "json"
    form = "none" if arguments.quiet else arguments.log or by_default
    is_file = form not in ("text", "json", "none")
    with Path(form).open("a", encoding="utf-8") if is_file else nullcontext(StderrAboveBar()) as stream:
        logs = Logs(
            None if form == "none" else cast(TextIO, stream),
            with_prompts=arguments.log_prompts,
            line=text_line if form == "text" else None,
        )
        with device_notes(lambda message: logs.write("device", message=message)):
            yield logs


@contextmanager
def _open_traces(arguments: argparse.Namespace, logs: Logs) -> Generator[Traces | None, None, None]:
    """Traces to the endpoint of --traces or of a variable of OpenTelemetry; None, and no import of its SDK,
    if neither is set. Without its packages, --traces is an error; a variable, which may be meant for other
    programs, is a warning."""
    from pteron.serving.http.request_log import log_records
    from pteron.serving.http.telemetry import VARIABLES, open_traces

    if arguments.traces is None and not any(map(os.environ.get, VARIABLES)):
        yield None
        return
    with ExitStack() as stack:
        stack.enter_context(log_records("opentelemetry", logs))
        traces = None
        try:
            traces = stack.enter_context(open_traces(arguments.traces))
        except PteronError as error:
            if arguments.traces is not None:
                raise
            logs.write("server", level="warning", message=f"no traces are sent: {error}")
        yield traces


def _warn_of_access(keys: Sequence[str], arguments: argparse.Namespace, logs: Logs | None = None) -> None:
    if keys or _is_local(arguments.host):
        return
    message = f"everyone who can reach {arguments.host} can use the model: there is no --api-key or --new-key"
    if logs is not None:
        logs.write("access", level="warning", message=message)
    else:
        print_note(message)


def _whole_path(model: str) -> str:
    """A name, or a path from the root. Names are looked up on each machine: paths in its cache may differ."""
    return str(Path(model).resolve()) if Path(model).exists() else model


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _check_ray(arguments: argparse.Namespace) -> None:
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


def _serve_ray_several(
    arguments: argparse.Namespace, models: Sequence[GivenModel], keep_alive: float, banner: Banner
) -> None:
    """Serve several models: each replica loads those that its requests name."""
    if any(model.adapters or len(model.names) > 1 for model in models):
        raise InputError("--ray with several models takes no --lora and no --alias")
    first, *more = models
    options = _app_options(banner.keys, arguments) | {
        "more_models": {model.names[0]: _whole_path(model.given) for model in more},
        "keep_alive": keep_alive,
    }
    _serve_ray(arguments, _whole_path(first.given), banner, options)


def _serve_ray(
    arguments: argparse.Namespace, model: str, banner: Banner, app_options: Mapping[str, Any]
) -> None:
    """Serve a model until a signal ends it. `app_options` do not depend on Ray."""
    from pteron.serving.cluster import Options
    from pteron.serving.cluster.launch import run

    name = banner.names[0]
    speculate = arguments.speculate and _whole_path(arguments.speculate)
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
        adapters={name: _whole_path(path) for name, path in arguments.lora},
        queue=arguments.queue,
        logs_prompts=arguments.log_prompts,
        is_quiet=arguments.quiet,
        **load_settings(arguments) | {"data": tuple(arguments.data), "speculate": speculate},
        **{key: value for key, value in optional.items() if value is not None},
        **app_options,
    )
    run(
        options,
        address=arguments.ray_address,
        host=arguments.host,
        port=arguments.port,
        ready=lambda address: print("\n".join(banner.lines(address, "models")), flush=True),
        waits=lambda why: print_note(f"{name} is not served yet: {why}"),
    )


def adapter_path(text: str) -> tuple[str, str]:
    """`NAME=PATH`"""
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"expected NAME=PATH, such as sql=adapters/sql, not {text!r}")
    return name, path


def replicas(text: str) -> int | tuple[int, int]:
    """`2`, or `1-4`."""
    found = re.fullmatch(r"([1-9]\d{0,5})(?:-([1-9]\d{0,5}))?", text, re.ASCII)
    if not found or (found[2] and int(found[1]) > int(found[2])):
        raise argparse.ArgumentTypeError(f"expected a number or a range, such as 2 or 1-4, not {text!r}")
    return (int(found[1]), int(found[2])) if found[2] else int(found[1])


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
