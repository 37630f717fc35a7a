"""Checkpoint + options -> a .pte for the WebGPU/Vulkan delegate, by ExecuTorch's own Llama exporter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pteron.errors import InputError, PteronError
from pteron.llm.arguments import integer
from pteron.llm.export.calibration import calibration_texts
from pteron.llm.export.checkpoint import Checkpoint
from pteron.llm.export.eight_bits import to_eight_bits
from pteron.llm.export.rounded_model import put_into, round_weights
from pteron.llm.export.rounding import Rounded
from pteron.llm.export.stages import QUANTISING, ROUNDING
from pteron.llm.foreign import naming

FOUR_BITS = ("4w", "8da4w")  # of weights
QUANTIZATIONS = (*FOUR_BITS, "8w")
# How weights become integers of 4 bits: each by itself at its group's best scale (ExecuTorch's HQQ), each by
# itself at the scale of its group's extremes, which takes no time, or by errors that later columns make good.
ROUNDINGS = ("nearest", "extremes", "feedback")
PARAMETERS, WEIGHTS, TEXTS, PROGRAM = "params.json", "checkpoint.pth", "texts.json", "model.pte"


@dataclass(frozen=True)
class Options:
    """How a checkpoint becomes a program."""

    quantize: str | None = "4w"
    group_size: int = 32
    embedding_bits: int | None = 4
    max_seq_len: int = 128  # the most tokens of one call
    max_context_len: int = 2048  # the size of the key/value cache
    force_fp16: bool = False
    full_logits: bool = False
    rounding: str = "nearest"

    @property
    def feeds_back(self) -> bool:
        """Whether there are weights to round with feedback."""
        return self.quantize in FOUR_BITS and self.rounding == "feedback"


def check(checkpoint: Checkpoint, options: Options) -> None:
    """Refuse what the exporter would notice after minutes, or do otherwise without a word."""
    checkpoint.check_complete()
    if options.quantize not in (None, *QUANTIZATIONS):
        raise InputError(f"quantize must be {', '.join(QUANTIZATIONS)} or nothing, not {options.quantize!r}")
    if options.rounding not in ROUNDINGS:
        raise InputError(f"rounding must be {', '.join(ROUNDINGS)}, not {options.rounding!r}")
    if options.rounding != "nearest" and options.quantize not in FOUR_BITS:
        raise InputError(
            f"rounding {options.rounding!r} is for weights of 4 bits (quantize {' or '.join(FOUR_BITS)}), "
            f"not for quantize {options.quantize or 'none'}"
        )
    for name in ("group_size", "max_seq_len", "max_context_len"):
        integer(name, getattr(options, name))
    if options.embedding_bits not in (None, 4):
        raise InputError(f"embeddings are stored as floats or with 4 bits, not with {options.embedding_bits}")
    if not 1 < options.max_seq_len < options.max_context_len:
        raise InputError(
            f"max_seq_len {options.max_seq_len} must be at least 2 and less than max_context_len "
            f"{options.max_context_len}"
        )
    if options.quantize is None and options.embedding_bits is None:
        return
    group = options.group_size
    if group < 2:
        raise InputError(f"a group size of {group} makes no sense; 32 is usual")
    uneven = [name for name, shape in checkpoint.shapes.items() if len(shape) == 2 and shape[1] % group]
    if uneven:
        shape = checkpoint.shapes[uneven[0]]
        raise InputError(
            f"group size {group} does not divide the columns of {len(uneven)} weights, "
            f"such as {uneven[0]} with {shape[0]} x {shape[1]}"
        )


def stage(checkpoint: Checkpoint, folder: Path, options: Options) -> None:
    """Write a checkpoint as the exporter wants to find it, and the texts that rounding needs."""
    import torch

    with naming(f"the weights of {checkpoint.name} cannot be read"):
        weights = checkpoint.weights()
    (folder / PARAMETERS).write_text(json.dumps(checkpoint.parameters), "utf-8")
    if options.feeds_back:
        texts = calibration_texts(checkpoint.vocabulary, checkpoint.parameters["vocab_size"])
        (folder / TEXTS).write_text(json.dumps(texts), "utf-8")
    try:
        torch.save(weights, folder / WEIGHTS)
    except RuntimeError as error:  # how PyTorch says that a disk is full
        raise PteronError(f"the weights of {checkpoint.name} cannot be written: {error}") from error


def llm_config(folder: Path, options: Options, metadata: dict[str, object] | None = None) -> Any:
    """ExecuTorch's configuration for a staged checkpoint; `metadata` become constants of the program."""
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
    # The exporter bounds a call by one token less than it is told.
    config.export.max_seq_length = options.max_seq_len + 1
    config.export.max_context_length = options.max_context_len
    config.export.output_dir = str(folder)
    config.export.output_name = str(folder / PROGRAM)
    config.quantization.qmode = None if options.quantize == "8w" else options.quantize
    config.quantization.group_size = options.group_size
    config.quantization.use_hqq = options.rounding == "nearest"
    if options.embedding_bits:
        # One group size for both: a tied table, quantised alike, is then stored once.
        config.quantization.embedding_quantize = f"{options.embedding_bits},{options.group_size}"
    config.backend.vulkan.enabled = True
    config.backend.vulkan.force_fp16 = options.force_fp16
    config.debug.generate_full_logits = options.full_logits
    return config


def lower(folder: Path, options: Options, metadata: dict[str, object] | None = None) -> Path:
    """Export the checkpoint staged in a folder; the program lies beside it. For a process of its own."""
    from executorch.examples.models.llama import export_llama_lib as exporter

    prepare, rounded = exporter._prepare_for_llama_export, _rounded(folder, options)

    def prepare_and_finish(config: Any) -> Any:
        builder = prepare(config)
        _finish(builder.model, options, rounded)
        rounded.clear()  # the rest of an export needs the memory
        return builder

    exporter._prepare_for_llama_export = prepare_and_finish
    print(QUANTISING, flush=True)
    return Path(exporter.export_llama(llm_config(folder, options, metadata)))


def eager_model(folder: Path, options: Options) -> Any:
    """The PyTorch module that `lower` exports, quantised as it is there: the reference for its outputs."""
    from executorch.examples.models.llama.export_llama_lib import _prepare_for_llama_export

    model = _prepare_for_llama_export(llm_config(folder, options)).model.eval()
    _finish(model, options, _rounded(folder, options))
    return model


def _finish(model: Any, options: Options, rounded: dict[str, Rounded]) -> None:
    """What ExecuTorch's quantisers do not do."""
    if options.quantize == "8w":
        to_eight_bits(model)
    put_into(model, rounded)


def _rounded(folder: Path, options: Options) -> dict[str, Rounded]:
    """The staged weights that are rounded here, and not by ExecuTorch."""
    import torch

    if not options.feeds_back:
        return {}
    print(ROUNDING, flush=True)
    parameters = json.loads((folder / PARAMETERS).read_text("utf-8"))
    texts = torch.tensor(json.loads((folder / TEXTS).read_text("utf-8")))
    weights = torch.load(folder / WEIGHTS, mmap=True, weights_only=True)
    with torch.no_grad():
        return round_weights(parameters, weights, texts, options.group_size)
