"""What lies beside an exported program: tokenizer, chat template, licence, and pteron.json to name them."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from pteron.llm.export.checkpoint import Checkpoint
from pteron.llm.export.lowering import FOUR_BITS, PROGRAM, Options
from pteron.llm.model_files import MANIFEST, TEMPLATE


def put_in_place(made: Path, folder: Path) -> None:
    """Move all files of a folder into another, the manifest last.

    Each takes the place of an earlier one, or of a link, at once: whoever looks meanwhile, or is left with
    what an interruption leaves, sees whole files.
    """
    if not (made / TEMPLATE).exists():
        (folder / TEMPLATE).unlink(missing_ok=True)  # of an earlier export
    for file in sorted(made.iterdir(), key=lambda file: file.name == MANIFEST):
        file.replace(folder / file.name)


def write_companions(checkpoint: Checkpoint, options: Options, folder: Path) -> None:
    vocabulary = checkpoint.vocabulary
    for name, content in {**vocabulary.files, **checkpoint.notices}.items():
        (folder / name).write_bytes(content)
    if vocabulary.chat_template is not None:
        (folder / TEMPLATE).write_text(vocabulary.chat_template, encoding="utf-8")
    manifest = {
        "name": checkpoint.name,
        "model": PROGRAM,
        "tokenizer": vocabulary.tokenizer,
        "bos_id": vocabulary.bos_id,
        "eos_ids": list(vocabulary.eos_ids),
        "add_bos_token": vocabulary.adds_bos,
        "max_seq_len": options.max_seq_len,
        "max_context_len": options.max_context_len,
        "vocab_size": checkpoint.parameters["vocab_size"],
        "quantize": options.quantize,
        "group_size": options.group_size if options.quantize or options.embedding_bits else None,
        "embedding_bits": options.embedding_bits,
        "rounding": options.rounding if options.quantize in FOUR_BITS else None,
        "force_fp16": options.force_fp16,
        "licence": checkpoint.licence,
        "exporter": f"executorch {version('executorch')}",
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
