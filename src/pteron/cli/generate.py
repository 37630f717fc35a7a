"""pteron generate: continue a text."""

from __future__ import annotations

import argparse
import sys

from pteron.cli import INTERRUPTED
from pteron.cli.arguments import Options, add_examples
from pteron.cli.llm_arguments import (
    add_llm_arguments,
    build_grammar,
    build_sampling,
    is_interactive,
    longer_context,
    open_model,
    print_finish_reason,
    print_statistics,
    print_stream,
    warn_unused_options,
)
from pteron.cli.terminal import reading_stdin
from pteron.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.add("--prompt", "TEXT", "the text to continue (default: standard input)", also=["-p"])
    overflow = "what to do with a prompt longer than the context: fail, or drop its oldest tokens"
    options.choice("--overflow", ["error", "truncate"], "error", overflow)
    add_llm_arguments(options, max_new_tokens=200)
    forms = Options(parser.add_mutually_exclusive_group())
    forms.add("--json-schema", "SCHEMA", "generate JSON that fits this JSON schema: a file, or JSON itself")
    forms.add("--regex", "PATTERN", "generate text that matches this regular expression")
    options.json()
    add_examples(
        parser,
        'pteron generate stories15m "Once upon a time"',
        'pteron generate folder --prompt "The cat" --temperature 0.8 --top-p 0.9 --seed 1',
        "pteron generate folder --json < prompt.txt",
        'pteron generate folder --prompt "The capital of France is " --regex "[A-Z][a-z]+"',
    )


def command(arguments: argparse.Namespace) -> int:
    prompt = arguments.text if arguments.prompt is None else arguments.prompt
    if arguments.prompt is not None and arguments.text is not None:
        raise InputError(f"two texts were given: {arguments.text!r}, and another with --prompt")
    if prompt is None:
        if is_interactive():
            raise InputError("give a text after the model, with --prompt, or on standard input")
        with reading_stdin():
            prompt = sys.stdin.read()
    with open_model(arguments) as llm:
        sampling = build_sampling(arguments, llm)
        warn_unused_options(arguments, sampling)
        pieces = llm.generate(
            prompt,
            max_new_tokens=arguments.max_new_tokens,
            sampling=sampling,
            stop=arguments.stop,
            overflow=arguments.overflow,
            grammar=build_grammar(arguments, llm),
            adapter=next(iter(llm.adapters), None),
        )
        if arguments.json:
            from pteron.tools.text import json_text

            tokens = list(pieces)
            report = {
                "prompt": prompt,
                "text": "".join(piece.text for piece in tokens),
                "device": str(llm.model.device.adapter),
                "sampling": sampling,
                "tokens": tokens,
                "statistics": llm.statistics,
            }
            print(json_text(report))
            return 0
        _, is_interrupted = print_stream(llm, pieces, prompt)
        if not arguments.quiet:
            print_finish_reason(llm, longer_context(llm) or "export with a larger context")
            print_statistics(llm)
    return INTERRUPTED if is_interrupted else 0
