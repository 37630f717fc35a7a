"""A checkpoint -> a folder for `pteron generate` and `pteron chat`: program, tokenizer, chat template.

    export_llm("SmolLM2-135M-Instruct", "smollm2", max_context_len=2048)

In: a Hugging Face folder, a GGUF file or a llama2.c model. Out: a folder with model.pte, the tokenizer,
chat_template.jinja and pteron.json.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias, cast

from pteron.errors import InputError
from pteron.extras import check_installed
from pteron.folders import existing, path_of, writing_to
from pteron.format.source import open_file
from pteron.llm.arguments import integer
from pteron.llm.export.checkpoint import EMBEDDING_WEIGHT, Checkpoint
from pteron.llm.export.gguf_file import read_gguf
from pteron.llm.export.huggingface import read_huggingface
from pteron.llm.export.llama2c import read_llama2c
from pteron.llm.network.options import AUTO, FOUR_BITS, IN_GROUPS, Options
from pteron.llm.network.program import BuiltProgram
from pteron.names.model_files import MANIFEST, TEMPLATE, as_format_error
from pteron.system import move

PROGRAM = "model.pte"
Progress: TypeAlias = Callable[[str], None]
CONTEXT, CONTEXT_MAX = 4096, 1 << 17  # tokens, of the caches in a program and of its tables by position
CALL = 128  # tokens of one call
_SCALARS = (str, int, float, bool)

__all__ = ["Options", "export_checkpoint", "export_llm", "read_checkpoint"]


def read_checkpoint(source: str | os.PathLike[str]) -> Checkpoint:
    """A checkpoint with its configuration; weights are read later, on use."""
    source = existing(source)
    with as_format_error(f"{source} cannot be exported"):
        if source.is_dir():
            return read_huggingface(source)
        with open_file(source) as file:
            magic = file.read(4)
        if magic == b"GGUF":
            return read_gguf(source)
        if source.suffix == ".bin":
            return read_llama2c(source)
    raise InputError(f"{source} is neither a Hugging Face folder nor a GGUF file nor a llama2.c model (.bin)")


def export_llm(
    source: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    quantize: str | None = AUTO,
    quantize_floats: str | None = "4w",
    group_size: int = 32,
    embedding_bits: int | str | None = AUTO,
    rounding: str = "nearest",
    max_seq_len: int | None = None,
    max_context_len: int | None = None,
    force_fp16: bool = False,
    full_logits: bool = False,
    name: str | None = None,
    progress: Progress = lambda line: None,
) -> Path:
    """Export a checkpoint into `out_dir` and return that folder.

    `quantize` is "4w" (4-bit weights), "8da4w" (also 8-bit activations), "8w" (8-bit weights), "8g" (8-bit
    weights in groups, which has most quantised GGUF types exactly), None (float32) or "auto": "8g" for GGUF
    files with quantised matrices and for MXFP4 of gpt-oss, `quantize_floats` for other checkpoints.
    "4w" and "8g" have a scale per `group_size` columns or the file's groups, "8w" has one per row.
    `embedding_bits` is 4, 8 (in groups), None (float32) or "auto": 8 with "8g", otherwise 4, or None if only
    the embedding would have groups and `group_size` does not divide its columns. `rounding` to 4 bits is
    "nearest" (with searched scales) or "extremes" (with scales from each group's largest weight: fast and
    coarse). `max_seq_len` is the most tokens of one call (default: 128), `max_context_len` of a conversation.
    By default, conversations have at most 4096 tokens, and `LLM(context=...)` chooses any other number up to
    the model's own. `name` is the model's name in its manifest. `progress` receives lines of text.
    """
    checkpoint = read_checkpoint(source)
    checkpoint.name = name or checkpoint.name
    if quantize == AUTO:
        is_exact = checkpoint.has_groups and rounding == "nearest"
        quantize = IN_GROUPS if is_exact else quantize_floats
    if embedding_bits == AUTO:
        embedding_bits = _embedding_bits(checkpoint, quantize, group_size)
    context = max_context_len or min(checkpoint.context_length, CONTEXT)
    options = Options(
        quantize=quantize,
        group_size=group_size,
        embedding_bits=cast(int | None, embedding_bits),
        rounding=rounding,
        max_seq_len=min(CALL, context - 1) if max_seq_len is None else max_seq_len,
        max_context_len=context,
        longest_context=_longest(checkpoint, max_context_len),
        force_fp16=force_fp16,
        full_logits=full_logits,
    )
    return export_checkpoint(checkpoint, path_of(out_dir), options, progress)


def _embedding_bits(checkpoint: Checkpoint, quantize: str | None, group_size: int) -> int | None:
    """The default bits of the embedding table: 8 or 4, or None for floats."""
    if quantize == IN_GROUPS:
        return 8
    fits = checkpoint.tensors[EMBEDDING_WEIGHT].shape[1] % max(integer("group_size", group_size), 1) == 0
    return 4 if fits or quantize in FOUR_BITS else None


def _is_plain(value: object) -> bool:
    """Whether a value is a scalar or a list of scalars."""
    values = value if isinstance(value, list) else [value]
    return all(isinstance(each, _SCALARS) for each in values)


def _longest(checkpoint: Checkpoint, max_context_len: int | None) -> int | None:
    """The longest context that may be chosen at load: the model's own, unless the caller limits it."""
    if max_context_len is not None:
        return None
    return min(checkpoint.context_length, CONTEXT_MAX)


def export_checkpoint(
    checkpoint: Checkpoint, out_dir: Path, options: Options, progress: Progress = lambda line: None
) -> Path:
    """Export a checkpoint that `read_checkpoint` returned."""
    started = time.perf_counter()
    check_installed(("tokenizers",), "exporting a model", "llm")
    count = checkpoint.parameter_count
    parameters = f"{count / 1e6:,.0f} million" if count >= 1e6 else f"{count:,}"
    progress(f"{checkpoint.name}: {parameters} parameters")
    program = checkpoint.program(options)  # raises if the checkpoint cannot be exported
    if options.max_context_len > checkpoint.context_length:
        progress(
            f"the model was trained for {checkpoint.context_length} tokens, less than the requested context"
        )
    with writing_to(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
        # Not in the system's temporary folder, which may be too small for the weights.
        with tempfile.TemporaryDirectory(dir=out_dir, prefix=".export-") as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            program.write(made / PROGRAM, progress, checkpoint.name)
            _write_companions(checkpoint, options, made, program)
            _move_into(made, out_dir)
    size = (out_dir / PROGRAM).stat().st_size
    progress(f"{PROGRAM}: {size / 1e6:.1f} MB in {time.perf_counter() - started:.1f} s")
    return out_dir


def _move_into(made: Path, folder: Path) -> None:
    """Move all files of a folder into another, the manifest last. Each replaces an earlier file or link
    atomically, so readers never see an incomplete file."""
    if not (made / TEMPLATE).exists():
        (folder / TEMPLATE).unlink(missing_ok=True)  # from an earlier export
    for file in sorted(made.iterdir(), key=lambda file: file.name == MANIFEST):
        move(file, folder / file.name)


def _write_companions(checkpoint: Checkpoint, options: Options, folder: Path, program: BuiltProgram) -> None:
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
        "longest_context_len": program.longest_context,
        "longest_rebuilt_context_len": program.longest_rebuilt,
        "vocab_size": checkpoint.vocabulary_size,
        "quantize": options.quantize,
        "group_size": options.group_size if options.has_groups else None,
        "embedding_bits": options.embedding_bits,
        "rounding": options.rounding if options.quantize in FOUR_BITS else None,
        "force_fp16": options.force_fp16,
        "licence": checkpoint.licence,
        "vision": checkpoint.vision.processor.manifest if checkpoint.vision else None,
        # For adapters, whose modules are named as in the checkpoint.
        "config": {key: value for key, value in checkpoint.config.items() if _is_plain(value)},
        "exporter": f"pteron {version('pteron')}",
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
