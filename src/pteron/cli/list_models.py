"""pteron list: the models on this machine."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import Options, add_examples
from pteron.cli.terminal import print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    Options(parser).json()
    add_examples(
        parser,
        "pteron list",
        "pteron list --json",
        "",
        "Models are built-in ones, those in the cache of a hub, and files that programs were built from.",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.llm.names.local_models import local_models
    from pteron.tools.text import columns, human_bytes

    models = local_models()
    rows = [("model", "kind", "size", "built")]
    for model in models:
        size, built = (
            human_bytes(size) if size else "-" for size in (model.source_bytes, model.program_bytes)
        )
        rows.append((model.name, model.kind, size, built))
    report = [
        {
            "name": model.name,
            "kind": model.kind,
            "source": str(model.source),
            "source_bytes": model.source_bytes,
            "programs": [str(folder) for folder in model.programs if folder.exists()],
            "program_bytes": model.program_bytes,
        }
        for model in models
    ]
    print_result(report, columns(rows, align="<<>>"), as_json=arguments.json)
    return 0
