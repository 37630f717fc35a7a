"""pteron pull: download a model and build its program, so that it starts at once later."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import Options, add_examples
from pteron.cli.named_model import given_model
from pteron.cli.progress import model_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model()
    options.flag("--no-build", "download only; the first use builds the program")
    add_examples(
        parser,
        "pteron pull smollm2                    # a built-in model",
        "pteron pull Qwen/Qwen3-0.6B            # a checkpoint of a hub (needs the extra `hub`)",
        "pteron pull owner/name:Q4_K_M          # its GGUF file with this quantisation",
        "pteron pull owner/name@v1:model.gguf   # a file of a revision",
        "",
        "Hub models are in the cache of huggingface_hub. Its variables apply: HF_HOME, HF_ENDPOINT,",
        "HF_HUB_OFFLINE, HF_TOKEN. An interrupted download continues where it ended.",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.llm.names.model_names import locate
    from pteron.llm.names.program_cache import build

    with model_progress() as report:
        located = locate(given_model(arguments), report, update=True)
        is_built = located.kind == "program" or arguments.no_build
        found = located if is_built else build(located, report)
    print(found.path)
    return 0
