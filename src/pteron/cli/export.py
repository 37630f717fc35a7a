"""pteron export: from a checkpoint to a folder that `pteron generate` and `pteron chat` take."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import examples, positive
from pteron.cli.exporting import told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples(parser, "pteron export llm SmolLM2-135M-Instruct -o smollm2")
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    llm = kinds.add_parser(
        "llm",
        help="a language model: Llama, SmolLM2, Mistral, Qwen2 or Qwen3",
        description="Make a folder of a language model: Llama, SmolLM2, Mistral, Qwen2 or Qwen3.",
    )
    llm.add_argument(
        "source",
        metavar="CHECKPOINT",
        help="a Hugging Face folder, a GGUF file or a llama2.c model",
    )
    llm.add_argument(
        "-o", "--output", metavar="FOLDER", required=True, help="for the program and its tokenizer"
    )
    llm.add_argument(
        "--quantize",
        choices=["4w", "8da4w", "8w", "none"],
        default="4w",
        help="4-bit weights, these with 8-bit activations, 8-bit weights, or float32 (default: %(default)s)",
    )
    llm.add_argument(
        "--group-size",
        type=positive,
        default=32,
        metavar="N",
        help="weights that share a scale (default: %(default)s)",
    )
    llm.add_argument(
        "--embedding-bits",
        choices=["4", "none"],
        help="of the embedding table (default: 4, or none where weights are float32)",
    )
    llm.add_argument(
        "--rounding",
        choices=["nearest", "extremes", "feedback"],
        default="nearest",
        help="to 4 bits: each weight by itself at its group's best scale, at that of the group's largest "
        "weight (quick and coarse), or errors made good by later columns (default: %(default)s)",
    )
    llm.add_argument(
        "--max-seq-len",
        type=positive,
        default=128,
        metavar="N",
        help="the most tokens of one call (default: %(default)s)",
    )
    llm.add_argument(
        "--max-context-len",
        type=positive,
        metavar="N",
        help="the most tokens of a conversation (default: the model's, up to 2048)",
    )
    llm.add_argument("--fp16", action="store_true", help="compute in 16 bits, which the GPU must support")
    llm.set_defaults(command=command)
    examples(
        llm,
        "pteron export llm SmolLM2-135M-Instruct -o smollm2",
        "pteron export llm model.gguf -o folder --max-context-len 8192",
        "pteron export llm Llama-3.2-1B -o folder --quantize 8da4w --group-size 64",
    )


def command(arguments: argparse.Namespace) -> int:
    # Here, because the other commands need not know that the exporter exists.
    from pteron.llm.export import export_llm

    quantize = None if arguments.quantize == "none" else arguments.quantize
    embedding = arguments.embedding_bits or ("4" if quantize else "none")
    with told() as progress:
        folder = export_llm(
            arguments.source,
            arguments.output,
            quantize=quantize,
            group_size=arguments.group_size,
            embedding_bits=None if embedding == "none" else int(embedding),
            rounding=arguments.rounding,
            max_seq_len=arguments.max_seq_len,
            max_context_len=arguments.max_context_len,
            force_fp16=arguments.fp16,
            progress=progress,
        )
    print(folder)
    return 0
