"""A Hugging Face folder (config.json, *.safetensors, tokenizer) -> a checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.format.safetensors import read_safetensors
from pteron.format.source import read_file
from pteron.llm.architectures import Family, find_family
from pteron.llm.architectures.defaults import with_defaults
from pteron.llm.export.checkpoint import Checkpoint, Vocabulary, as_config_error, as_named_error, assemble
from pteron.llm.export.mxfp4 import with_mxfp4
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.names.model_files import (
    COMPANION_BYTES_MAX,
    TOKENIZERS,
    is_there,
    read_json,
    read_utf8,
    shard_names,
)

COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
NOTICES = re.compile(r"(LICEN[CS]E|NOTICE)[^/]*", re.IGNORECASE)
# Methods of quantisation as config.json has them -> their usual names.
_METHODS = {"awq": "AWQ", "fp8": "FP8", "fbgemm_fp8": "FP8", "gptq": "GPTQ", "hqq": "HQQ", "mlx": "MLX"}


def read_huggingface(folder: Path) -> Checkpoint:
    config = read_json(folder / "config.json")
    if not config:
        raise FormatError(f"{folder} has no config.json: not a Hugging Face checkpoint")
    family = check_config(folder.name, config)
    files = weight_files(folder)
    tensors = {name: tensor for file in files for name, tensor in read_safetensors(file).items()}
    with as_config_error(folder.name), as_named_error(folder.name):
        tensors, config = with_mxfp4(tensors), with_defaults(config)
    settings = _image_settings(folder) if family.vision else None
    vocabulary = read_vocabulary(folder)
    checkpoint = assemble(folder.name, config, family, tensors, family.hugging_face, vocabulary, settings)
    checkpoint.licence = read_licence(folder)
    checkpoint.notices = {
        file.name: read_file(file, COMPANION_BYTES_MAX)
        for file in folder.iterdir()
        if NOTICES.fullmatch(file.name) and file.is_file()
    }
    return checkpoint


def _image_settings(folder: Path) -> dict[str, Any]:
    """The settings of the image processor; newer folders have them in processor_config.json."""
    settings = read_json(folder / "processor_config.json").get("image_processor")
    return settings if isinstance(settings, dict) else read_json(folder / "preprocessor_config.json")


def check_config(name: str, config: dict[str, Any]) -> Family:
    """The family of a checkpoint. Raises for one that cannot be read, by its configuration alone."""
    _check_unquantized(name, config)
    return find_family(name, config.get("model_type"))


def _check_unquantized(name: str, config: dict[str, Any]) -> None:
    """Raise for weights that another tool has quantised; MXFP4 of gpt-oss is read."""
    for part in (config, config.get("text_config")):
        if not isinstance(part, dict):
            continue
        settings = (
            part.get("quantization_config") or part.get("compression_config") or part.get("quantization")
        )
        if not isinstance(settings, dict):
            continue
        # MLX writes `quantization`, and `quantization_config` with the same content.
        method = str(settings.get("quant_method") or ("mlx" if "bits" in settings else "an unknown method"))
        if method != "mxfp4":
            raise UnsupportedError(
                f"{name}: its weights are quantised by {_METHODS.get(method, method)}, which is not "
                "supported; use the unquantised checkpoint that they were made from, or a GGUF file"
            )


def weight_files(folder: Path) -> list[Path]:
    """The files that the index lists, or model.safetensors, or all. Some folders have the weights twice."""
    names = shard_names(folder)
    if names:
        missing = [name for name in names if not is_there(folder / name)]
        if missing:
            raise FormatError(f"{folder} lacks {len(missing)} files of weights, such as {missing[0]}")
        return [folder / name for name in names]
    whole = folder / "model.safetensors"
    files = [whole] if is_there(whole) else sorted(filter(is_there, folder.glob("*.safetensors")))
    if not files:
        raise FormatError(f"{folder} has no .safetensors files")
    return files


def read_licence(folder: Path) -> str | None:
    """The licence in the header of the model card."""
    card = folder / "README.md"
    found = card.exists() and re.search(r"^license: *(\S+)", read_utf8(card), re.MULTILINE)
    return found[1] if found else None


def read_vocabulary(folder: Path) -> Vocabulary:
    tokenizer = load_tokenizer(folder)
    found = [file for pattern in TOKENIZERS for file in sorted(folder.glob(pattern))]
    kept = found[:1] + [folder / name for name in COMPANIONS if (folder / name).exists()]
    return Vocabulary(
        found[0].name,
        {file.name: read_file(file, COMPANION_BYTES_MAX) for file in kept},
        tokenizer.bos_id,
        tokenizer.eos_ids,
        tokenizer.adds_bos,
        tokenizer.chat_template,
    )
