"""pteron export: from a checkpoint to a folder for `pteron generate`, `chat` and `serve`; from a model to a
site."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pteron.cli.arguments import Options, add_examples, positive
from pteron.cli.progress import export_progress
from pteron.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_examples(
        parser, "pteron export llm SmolLM2-135M-Instruct -o smollm2", "pteron export web stories15m -o site"
    )
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    llm = kinds.add_parser(
        "llm",
        help="a language model: Llama, Mistral, Qwen, Gemma, Phi and others",
        description="Export a language model: Llama, Mistral, Qwen, Gemma, Phi and others (docs/export.md).",
    )
    llm.add_argument(
        "source",
        metavar="CHECKPOINT",
        help="a Hugging Face folder, a GGUF file, a llama2.c model, or owner/name of a hub",
    )
    llm.add_argument(
        "-o", "--output", metavar="FOLDER", required=True, help="folder for the program and its tokenizer"
    )
    options = Options(llm)
    weights = (
        "4w: 4-bit weights; 8da4w: with 8-bit activations too; 8w: 8-bit weights; 8g: 8-bit weights in "
        "groups, exact for most GGUF types; none: float32; auto: 8g for quantised GGUF files, else 4w"
    )
    options.choice("--quantize", ["auto", "4w", "8da4w", "8w", "8g", "none"], "auto", weights)
    options.add("--group-size", "N", "weights that share a scale", positive, 32)
    llm.add_argument(
        "--embedding-bits",
        choices=["4", "8", "none"],
        help="bits of the embedding table (default: 4, 8 with 8g, or none with float32 weights)",
    )
    options.choice(
        "--rounding",
        ["nearest", "extremes"],
        "nearest",
        "how weights become 4 bits; nearest: with the best scale of each group; extremes: with the scale of "
        "its largest weight (quick, coarse)",
    )
    options.add("--max-seq-len", "N", "maximum tokens of one call (default: 128)", positive)
    context = "maximum tokens of a conversation (default: chosen at load, up to the model's)"
    options.add("--max-context-len", "N", context, positive)
    options.flag("--fp16", "compute in 16 bits, which the GPU must support")
    llm.set_defaults(command=command)
    add_examples(
        llm,
        "pteron export llm SmolLM2-135M-Instruct -o smollm2",
        "pteron export llm model.gguf -o folder --max-context-len 1024",
        "pteron export llm Qwen/Qwen3-0.6B -o folder",
        "pteron export llm Llama-3.2-1B -o folder --quantize 8da4w --group-size 64",
    )
    _add_web(kinds)


def command(arguments: argparse.Namespace) -> int:
    from pteron.llm.export import export_llm

    quantize = None if arguments.quantize == "none" else arguments.quantize
    embedding = arguments.embedding_bits or ("auto" if quantize else "none")
    with export_progress() as progress:
        path = _find_checkpoint(arguments.source, progress)
        folder = export_llm(
            path,
            arguments.output,
            quantize=quantize,
            group_size=arguments.group_size,
            embedding_bits=int(embedding) if embedding.isdigit() else None if embedding == "none" else "auto",
            rounding=arguments.rounding,
            max_seq_len=arguments.max_seq_len,
            max_context_len=arguments.max_context_len,
            force_fp16=arguments.fp16,
            progress=progress,
        )
    print(folder)
    return 0


def _add_web(kinds: Any) -> None:
    web = kinds.add_parser(
        "web",
        help="a site that runs a model in a browser, on the visitor's GPU",
        description="Write a folder of static files that runs a model in a browser (docs/web.md).",
    )
    web.add_argument("model", metavar="MODEL", help="a program, a folder, or a model's name")
    web.add_argument("-o", "--output", metavar="SITE", required=True, help="folder for the site")
    options = Options(web)
    options.repeatable(
        "--variant",
        "NAME",
        "kind of adapter to plan for: subgroups-f16, subgroups, hardware-f16, hardware or software",
        default="subgroups, hardware and software",
    )
    options.repeatable("--method", "NAME", "method to export", default="all")
    options.repeatable(
        "--shape",
        "NAME=SIZES",
        "live shapes of inputs to plan for, such as x=1x3x224x224, or with a range of sizes x=1x1-8; commas "
        "separate inputs",
        _shape,
        "the maximum",
    )
    options.add(
        "--context", "N", "tokens of a language model's conversation (default: the model's)", positive
    )
    options.repeatable("--length", "N", "tokens of a prompt to plan for", positive, "4, 16, 64 and 128")
    web.add_argument("--cache", choices=["f32", "f16", "int8"], help="type of a language model's KV cache")
    web.add_argument(
        "--page",
        choices=["chat", "vision", "generic"],
        help="the example page (default: by the model's inputs)",
    )
    options.add("--labels", "FILE", "names of classes, one a line, for the page of a network for pictures")
    options.add("--name", "TEXT", "the model's name on the page")
    options.flag("--force", "replace the page of an earlier export, even if it was changed")
    web.set_defaults(command=web_command)
    add_examples(
        web,
        "pteron export web stories15m -o site && python3 -m http.server -d site",
        "pteron export web mobilenet.pte -o site --page vision",
        "pteron export web model.pte -o site --shape x=1x1-8",
    )


def _shape(text: str) -> str:
    """Shapes as `export_web` takes them, checked already."""
    from pteron.web.shapes import read_ranges

    try:
        read_ranges(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def web_command(arguments: argparse.Namespace) -> int:
    from pteron.names.model_files import read_utf8
    from pteron.web import export_web

    with export_progress() as progress:
        site = export_web(
            arguments.model,
            arguments.output,
            variants=arguments.variant or None,
            methods=arguments.method or None,
            shapes=arguments.shape,
            context=arguments.context,
            cache=arguments.cache,
            lengths=[1, *arguments.length] if arguments.length else None,
            labels=read_utf8(Path(arguments.labels)).splitlines() if arguments.labels else (),
            page=arguments.page,
            name=arguments.name,
            force=arguments.force,
            progress=progress,
        )
    print(site)
    return 0


def _find_checkpoint(given: str, progress: Callable[[str], None]) -> Path:
    """The checkpoint or GGUF file of a name. A built-in model is exported from the GGUF file that it is built
    from."""
    from pteron.llm.names.model_names import locate
    from pteron.llm.names.models import SOURCES, fetch_checkpoint

    if given in SOURCES and not Path(given).exists():
        return fetch_checkpoint(given, progress)
    located = locate(given, progress)
    if located.kind == "program":
        raise InputError(f"{given} is a program already ({located.path}); export needs a checkpoint")
    return located.path
