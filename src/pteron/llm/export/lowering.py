"""Checkpoint + options -> a .pte for the Vulkan delegate, by ExecuTorch's Llama exporter.

The exporter runs in a subprocess: it logs thousands of lines (some from C++), reconfigures Python's logging
and needs several times the model's size in memory. The caller also survives if the system kills the exporter
for its memory.
"""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from pteron.errors import PteronError
from pteron.llm.build.options import Options
from pteron.llm.export.checkpoint import Checkpoint, executorch_parameters
from pteron.llm.export.cost import FINDING, PACKING, QUANTISING, ROUNDING, WRITTEN
from pteron.llm.export.quantize_model import (
    QuantizedMatrix,
    calibration_texts,
    quantize_8_bits,
    quantize_model_gptq,
    replace_weights,
)
from pteron.llm.model_files import as_format_error
from pteron.processes import python_module, started_in

PARAMETERS, WEIGHTS, TEXTS, PROGRAM = "params.json", "checkpoint.pth", "texts.json", "model.pte"


def stage(checkpoint: Checkpoint, folder: Path, options: Options) -> None:
    """Write the files that the exporter reads, and the calibration texts of GPTQ."""
    import torch

    with as_format_error(f"the weights of {checkpoint.name} cannot be read"):
        weights = checkpoint.weights()
    (folder / PARAMETERS).write_text(json.dumps(executorch_parameters(checkpoint)), "utf-8")
    if options.uses_gptq:
        texts = calibration_texts(checkpoint.vocabulary, checkpoint.vocabulary_size)
        (folder / TEXTS).write_text(json.dumps(texts), "utf-8")
    try:
        torch.save(weights, folder / WEIGHTS)
    except RuntimeError as error:  # PyTorch's error when the disk is full
        raise OSError(f"the weights of {checkpoint.name}: {error}") from error


def llm_config(folder: Path, options: Options, metadata: dict[str, object] | None = None) -> Any:
    """ExecuTorch's configuration for a staged checkpoint; `metadata` becomes constant methods of the
    program."""
    from executorch.extension.llm.export.config.llm_config import DtypeOverride, LlmConfig, ModelType

    config = LlmConfig()
    config.base.model_class = ModelType.llama3_2
    config.base.params = str(folder / PARAMETERS)
    config.base.checkpoint = str(folder / WEIGHTS)
    config.base.metadata = json.dumps(metadata or {})
    config.model.use_kv_cache = True
    config.model.use_sdpa_with_kv_cache = True
    config.model.enable_dynamic_shape = True
    config.model.dtype_override = DtypeOverride.fp32
    # The exporter allows one token less per call than this value.
    config.export.max_seq_length = options.max_seq_len + 1
    config.export.max_context_length = options.max_context_len
    config.export.output_dir = str(folder)
    config.export.output_name = str(folder / PROGRAM)
    config.quantization.qmode = None if options.quantize == "8w" else options.quantize
    config.quantization.group_size = options.group_size
    config.quantization.use_hqq = options.rounding == "nearest"
    if options.embedding_bits:
        # The same group size as the weights: a tied table is then stored once.
        config.quantization.embedding_quantize = f"{options.embedding_bits},{options.group_size}"
    config.backend.vulkan.enabled = True
    config.backend.vulkan.force_fp16 = options.force_fp16
    config.debug.generate_full_logits = options.full_logits
    return config


def lower(folder: Path, options: Options, metadata: dict[str, object] | None = None) -> Path:
    """Export the checkpoint staged in a folder, into the same folder. Changes global state: run it in a
    subprocess."""
    from executorch.examples.models.llama import export_llama_lib as exporter

    prepare, quantized = exporter._prepare_for_llama_export, _quantize_gptq(folder, options)

    def prepare_and_finish(config: Any) -> Any:
        builder = prepare(config)
        _finish(builder.model, options, quantized)
        quantized.clear()  # frees memory for the rest of the export
        return builder

    exporter._prepare_for_llama_export = prepare_and_finish
    print(QUANTISING, flush=True)
    return Path(exporter.export_llama(llm_config(folder, options, metadata)))


def eager_model(folder: Path, options: Options) -> Any:
    """The quantised PyTorch module that `lower` exports: the reference for its outputs."""
    from executorch.examples.models.llama.export_llama_lib import _prepare_for_llama_export

    model = _prepare_for_llama_export(llm_config(folder, options)).model.eval()
    _finish(model, options, _quantize_gptq(folder, options))
    return model


def _finish(model: Any, options: Options, quantized: dict[str, QuantizedMatrix]) -> None:
    if options.quantize == "8w":
        quantize_8_bits(model)
    replace_weights(model, quantized)


def _quantize_gptq(folder: Path, options: Options) -> dict[str, QuantizedMatrix]:
    """The staged weights if GPTQ quantises them, else nothing."""
    import torch

    if not options.uses_gptq:
        return {}
    print(ROUNDING, flush=True)
    parameters = json.loads((folder / PARAMETERS).read_text("utf-8"))
    texts = torch.tensor(json.loads((folder / TEXTS).read_text("utf-8")))
    weights = torch.load(folder / WEIGHTS, mmap=True, weights_only=True)
    with torch.no_grad():
        return quantize_model_gptq(parameters, weights, texts, options.group_size)


# In a subprocess ------------------------------------------------------------------------------------

Progress: TypeAlias = Callable[[str], None]
JOB = "job.json"
# Lines in the log of the exporter and of `lower` -> the stage that starts there.
MILESTONES = {
    ROUNDING: ROUNDING,
    QUANTISING: QUANTISING,
    "Lowering model using following partitioner": FINDING,
    "Operators included in this Vulkan partition": PACKING,
    "Saved exported program": WRITTEN,
}
LINES_KEPT = 15  # of the log, for an error message


def lower_in_subprocess(
    folder: Path, options: Options, metadata: dict[str, object], progress: Progress
) -> Path:
    """Lower the checkpoint staged in a folder; returns the program's file."""
    (folder / JOB).write_text(json.dumps({"options": asdict(options), "metadata": metadata}), "utf-8")
    # With relative paths: the exporter takes a path with "8da4w" or "int8" in it for quantised weights.
    start = started_in(folder)
    start["env"]["PYTHONWARNINGS"] = "ignore"
    last = deque[str](maxlen=LINES_KEPT)
    with subprocess.Popen(
        python_module(__name__),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="locale",
        errors="replace",
        **start,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last.append(line)
                for sign, stage in MILESTONES.items():
                    if sign in line:
                        progress(stage)
        except BaseException:
            process.kill()
            raise
    if process.returncode == -9:
        raise PteronError("the system killed ExecuTorch's exporter, probably because memory ran out")
    program = folder / PROGRAM
    if process.returncode or not program.exists():
        raise PteronError(f"ExecuTorch's exporter failed; the end of its log:\n{''.join(last)}")
    return program


def main() -> None:
    job = json.loads(Path(JOB).read_text("utf-8"))
    lower(Path(), Options(**job["options"]), job["metadata"])


if __name__ == "__main__":
    main()
