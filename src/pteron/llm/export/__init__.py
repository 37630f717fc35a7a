"""From a checkpoint to a folder that `pteron generate` and `pteron chat` take: program, tokenizer, template.

    export_llm("SmolLM2-135M-Instruct", "smollm2", max_context_len=2048)

In: a Hugging Face folder, a GGUF file or a llama2.c model. Out: a folder with model.pte, the tokenizer,
chat_template.jinja and pteron.json. Needs the extra `export`.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from pteron.errors import InputError
from pteron.extras import check_installed
from pteron.folders import writing_to
from pteron.format.source import open_file
from pteron.llm.arguments import existing, path_of
from pteron.llm.export.apart import Progress, lower_apart
from pteron.llm.export.checkpoint import Checkpoint
from pteron.llm.export.folder import put_in_place, write_companions
from pteron.llm.export.lowering import PROGRAM, Options, check, stage
from pteron.llm.export.memory import check_memory
from pteron.llm.export.stages import LOADING, READING, in_stages
from pteron.llm.foreign import naming

__all__ = ["Options", "check_exporter", "export_checkpoint", "export_llm", "read_checkpoint"]


def check_exporter() -> None:
    """All packages that exporting needs are there."""
    needed = ("torch", "torchao", "executorch", "gguf", "safetensors", "tokenizers")
    check_installed(needed, "exporting a model", "export")


def read_checkpoint(source: str | os.PathLike[str]) -> Checkpoint:
    """Everything about a checkpoint but its weights, which are read when they are asked for."""
    source = existing(source)
    with naming(f"{source} cannot be exported"):
        return _read_checkpoint(source)


def _read_checkpoint(source: Path) -> Checkpoint:
    if source.is_dir():
        from pteron.llm.export.huggingface import read_huggingface

        return read_huggingface(source)
    with open_file(source) as file:
        magic = file.read(4)
    if magic == b"GGUF":
        from pteron.llm.export.gguf_file import read_gguf

        return read_gguf(source)
    if source.suffix == ".bin":
        from pteron.llm.export.llama2c import read_llama2c

        return read_llama2c(source)
    raise InputError(f"{source}: neither a Hugging Face folder nor a GGUF file nor a llama2.c model (.bin)")


def export_llm(
    source: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    quantize: str | None = "4w",
    group_size: int = 32,
    embedding_bits: int | None = 4,
    rounding: str = "nearest",
    max_seq_len: int = 128,
    max_context_len: int | None = None,
    force_fp16: bool = False,
    full_logits: bool = False,
    name: str | None = None,
    progress: Progress = lambda line: None,
) -> Path:
    """Export a checkpoint into `out_dir` and return that folder.

    `quantize` is "4w" (4-bit weights), "8da4w" (and 8-bit activations), "8w" (8-bit weights) or None
    (float32). `group_size` columns share a scale of 4-bit weights, all columns of a row one of 8-bit weights.
    `rounding` to 4 bits is "nearest" (each weight by itself, at its group's best scale), "extremes" (the
    same at the scale of the largest weight: quick and coarse) or "feedback" (what rounding a column does is
    made good in the next ones, by what enters them in a few conversations). `max_seq_len` bounds the tokens
    of one call, `max_context_len` those of a conversation (the model's own bound, up to 2048, unless given).
    `name` is what the model is called in its folder. `progress` receives a line now and then.
    """
    checkpoint = read_checkpoint(source)
    checkpoint.name = name or checkpoint.name
    options = Options(
        quantize=quantize,
        group_size=group_size,
        embedding_bits=embedding_bits,
        rounding=rounding,
        max_seq_len=max_seq_len,
        max_context_len=max_context_len or min(checkpoint.context_length, 2048),
        force_fp16=force_fp16,
        full_logits=full_logits,
    )
    return export_checkpoint(checkpoint, path_of(out_dir), options, progress)


def export_checkpoint(
    checkpoint: Checkpoint, out_dir: Path, options: Options, progress: Progress = lambda line: None
) -> Path:
    """Export a checkpoint that has been read already."""
    started = time.perf_counter()
    check_exporter()
    progress = in_stages(progress, checkpoint.parameter_count)
    check(checkpoint, options)
    if options.max_context_len > checkpoint.context_length:
        progress(
            f"the model was trained for {checkpoint.context_length} tokens, less than the context asked for"
        )
    progress(check_memory(checkpoint, options.max_context_len))

    vocabulary = checkpoint.vocabulary
    metadata: dict[str, object] = {"get_eos_ids": list(vocabulary.eos_ids)}
    if vocabulary.bos_id is not None:
        metadata["get_bos_id"] = vocabulary.bos_id
    with writing_to(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
        # Beside the result, because the system's temporary folder may be too small for the weights.
        with tempfile.TemporaryDirectory(dir=out_dir, prefix=".export-") as temporary:
            progress(READING)
            stage(checkpoint, Path(temporary), options)
            progress(LOADING)
            program = lower_apart(Path(temporary), options, metadata, progress)
            made = Path(temporary) / "made"
            made.mkdir()
            program.rename(made / PROGRAM)
            write_companions(checkpoint, options, made)
            put_in_place(made, out_dir)
    size = (out_dir / PROGRAM).stat().st_size
    progress(f"{out_dir / PROGRAM}: {size / 1e6:.1f} MB in {time.perf_counter() - started:.0f} s")
    return out_dir
